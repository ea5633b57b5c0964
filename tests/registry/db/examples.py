"""Small manifests that are right in form; the numbers in them tell them apart."""

from __future__ import annotations

from registry.db import Change, Database, channels, manifests
from registry.db.rows import GenerationRow
from schemas.adapter import AdapterManifest, FactorManifest, make_scale
from schemas.architectures import BertArchitecture
from schemas.base import BaseManifest, TensorRef
from schemas.composition import AdmissionManifest, CompositionManifest, ModuleRecord, ResolvedMember, ResolvedSpec
from schemas.decision import CoordinateStatus, Decision, Predicates, Vector
from schemas.digests import Digest, blob_digest
from schemas.methods import Choices
from schemas.model import Manifest
from schemas.publication import PublicationManifest, StatementManifest, Topic

ME = "tester"


def digest(text: str) -> Digest:
    """Some digest."""
    return blob_digest(text.encode())


def base(number: int = 1) -> BaseManifest:
    """A base whose vocabulary has `number` words."""
    return BaseManifest(
        weights="not_verified",
        weights_digest="not_verified",
        architecture=BertArchitecture(
            model_type="bert",
            hidden_size=4,
            num_hidden_layers=1,
            num_attention_heads=1,
            intermediate_size=4,
            hidden_act="gelu",
            layer_norm_eps=1e-12,
            max_position_embeddings=8,
            position_embedding_type="absolute",
            type_vocab_size=2,
            vocab_size=number,
        ),
        tokenizer="none",
    )


def adapter(number: int, of: BaseManifest | None = None, family: str = "lora") -> AdapterManifest:
    """An adapter of one module with its own tensors."""
    of = of or base()
    factor = FactorManifest(
        base=of.digest,
        module="encoder.query",
        a=TensorRef(tensor=digest(f"a{number}"), dtype="F32", shape=(2, 4)),
        b=TensorRef(tensor=digest(f"b{number}"), dtype="F32", shape=(4, 2)),
        rank=2,
        scale=make_scale(4.0, "alpha_over_r", 2),
        source="lora",
    )
    return AdapterManifest(base=of.digest, factors=(factor,), family=family)


def admission(*members: AdapterManifest, of: BaseManifest | None = None) -> AdmissionManifest:
    """An admission of these members."""
    of = of or base()
    passed = CoordinateStatus(status="pass", reason="plain", evidence="derived")
    spec = ResolvedSpec(
        base=of.digest,
        lane="static_fusion",
        members=_resolved(members),
        method="cat",
        space="delta",
        choices=Choices(),
    )
    decision = Decision(
        outcome="admitted",
        vector=Vector.model_validate(dict.fromkeys(Vector.model_fields, passed)),
        predicates=Predicates(B="pass", M="pass", T="pass", F="pass", C="none", S="none", R="none", E="none", K="none"),
        inputs=digest("inputs"),
    )
    return AdmissionManifest(spec=spec, rules="1", decision=decision)


def composition(
    output: AdapterManifest, *members: AdapterManifest, of: BaseManifest | None = None
) -> CompositionManifest:
    """A composition of these members with this output."""
    of = of or base()
    return CompositionManifest(
        admission=admission(*members, of=of).digest,
        base=of.digest,
        lane="static_fusion",
        members=_resolved(members),
        method="cat",
        alias=None,
        space="delta",
        choices=Choices(),
        stochastic=None,
        operator="cat/1",
        representation="lora",
        output=output.digest,
        modules=(ModuleRecord(module="encoder.query", input_ranks=(2,), output_rank=2),),
    )


def statement(
    subject: Digest, topic: Topic, body: dict[str, str | bool | None], previous: StatementManifest | None = None
) -> StatementManifest:
    """A statement after another one."""
    return StatementManifest(
        topic=topic,
        subject=subject,
        body=dict(body),
        author=ME,
        previous=None if previous is None else previous.digest,
    )


def store(database: Database, *stored: Manifest) -> None:
    """Store manifests, each after those it names."""
    database.change("store", ME, lambda change: [manifests.put(change, manifest) for manifest in stored])


def compose(database: Database, output: AdapterManifest, *members: AdapterManifest) -> CompositionManifest:
    """Store an admission, an output and the composition between them."""
    made = composition(output, *members)
    store(database, admission(*members), output, made)
    return made


def next_publication(change: Change, channel: str, *artifacts: Digest) -> PublicationManifest:
    """The publication that follows the head a change sees."""
    head = channels.head(change, channel)
    return PublicationManifest(
        channel=channel,
        generation=1 if head is None else head.number + 1,
        artifacts=artifacts,
        previous=None if head is None else head.publication,
        reason="release",
        restored=None,
        kv_identity=digest("kv"),
    )


def publish(database: Database, channel: str, *artifacts: Digest, expect: int | None = None) -> GenerationRow:
    """Append a generation."""
    return database.change(
        "publish", ME, lambda change: channels.append(change, next_publication(change, channel, *artifacts), expect)
    )


def _resolved(members: tuple[AdapterManifest, ...]) -> tuple[ResolvedMember, ...]:
    digests = sorted(member.digest for member in members)
    return tuple(ResolvedMember(adapter=member, weight=1.0) for member in digests)
