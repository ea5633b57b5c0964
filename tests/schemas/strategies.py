"""Any manifest of each kind, within its grammar."""

from __future__ import annotations

from typing import get_args

from hypothesis import strategies as st

from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, ScaleRule, make_scale
from schemas.architectures import BertArchitecture, LlamaArchitecture, Rope
from schemas.base import (
    BaseManifest,
    TensorRef,
    TokenizerRef,
    WeightRef,
    weights_digest,
)
from schemas.composition import (
    AdmissionManifest,
    Claims,
    CompositionManifest,
    MaskRef,
    ModuleRecord,
    ResolvedMember,
    ResolvedSpec,
    StochasticIdentity,
    in_identity_order,
)
from schemas.conversion import RULES, ConversionManifest, Store
from schemas.decision import (
    COMPONENTS,
    COORDINATES,
    CoordinateStatus,
    Decision,
    Finding,
    Predicates,
    PredicateStatus,
    Severity,
    Status,
    Vector,
)
from schemas.digests import PREFIX
from schemas.methods import (
    Choices,
    DareChoices,
    DtypeChoices,
    Lane,
    Method,
    PruneChoices,
    Space,
    SvdChoices,
    TiesChoices,
)
from schemas.model import Manifest, NotVerified
from schemas.publication import KvIdentity, PublicationManifest, StatementManifest, Topic

SAFE = 2**53 - 1
digests = st.binary(min_size=32, max_size=32).map(lambda data: PREFIX + data.hex())
text = st.text(st.characters(codec="utf-8"), max_size=12)
identifiers = st.text(st.characters(codec="utf-8"), min_size=1, max_size=12)
keys = st.from_regex(r"[a-z][a-z0-9_]{0,8}", fullmatch=True)
modules = st.from_regex(r"[!-~]{1,12}", fullmatch=True)
codes = st.from_regex(r"[A-Z][A-Z0-9_]{2,8}", fullmatch=True)
names = st.from_regex(r"[a-z0-9][a-z0-9._-]{0,8}", fullmatch=True)
counts = st.integers(0, SAFE)
finite = st.floats(allow_nan=False, allow_infinity=False)
densities = st.floats(0.0, 1.0, exclude_min=True)
seeds = st.integers(0, 2**64 - 1).map(str)
dtypes = st.sampled_from(["F32", "BF16", "F16", "F64"])
lanes = st.sampled_from(get_args(Lane))
methods = st.sampled_from(get_args(Method))
spaces = st.sampled_from(get_args(Space))
tensors = st.builds(TensorRef, tensor=digests, dtype=dtypes, shape=st.lists(counts, max_size=3).map(tuple))
weights = st.builds(
    WeightRef,
    tensor=digests | st.just("not_verified"),
    dtype=dtypes,
    shape=st.lists(counts, max_size=3).map(tuple),
)
ropes = st.builds(
    Rope,
    rope_type=identifiers,
    rope_theta=finite,
    parameters=st.dictionaries(identifiers, finite | st.booleans() | text | st.none(), max_size=3),
)
architectures = st.builds(
    BertArchitecture,
    model_type=st.just("bert"),
    layer_norm_eps=finite,
    hidden_act=identifiers,
    position_embedding_type=identifiers,
) | st.builds(LlamaArchitecture, model_type=st.just("llama"), rope=ropes, hidden_act=identifiers, rms_norm_eps=finite)


@st.composite
def bases(draw: st.DrawFn) -> BaseManifest:
    """A base at any level of evidence."""
    mapped: dict[str, WeightRef] | NotVerified = draw(
        st.dictionaries(identifiers, weights, max_size=3) | st.just("not_verified")
    )
    tokenizer = draw(st.builds(TokenizerRef, digest=digests, length=counts) | st.just("none"))
    return BaseManifest.model_validate(
        {
            "weights": mapped,
            "weights_digest": weights_digest(mapped),
            "architecture": draw(architectures),
            "tokenizer": tokenizer,
        }
    )


@st.composite
def factors(draw: st.DrawFn, base: st.SearchStrategy[str] = digests) -> FactorManifest:
    """A factor whose shapes and scale follow its rank."""
    rank = draw(st.integers(1, 2**31))
    rule: ScaleRule = draw(st.sampled_from(get_args(ScaleRule)))
    return FactorManifest(
        base=draw(base),
        module=draw(modules),
        expert=draw(st.none() | counts),
        map_head=draw(st.none() | counts),
        route_side=draw(st.none() | identifiers),
        a=draw(tensors).model_copy(update={"shape": (rank, draw(counts))}),
        b=draw(tensors).model_copy(update={"shape": (draw(counts), rank)}),
        rank=rank,
        scale=make_scale(
            draw(st.floats(-1e6, 1e6).filter(lambda alpha: alpha == 0.0 or abs(alpha) > 1e-9)), rule, rank
        ),
        extra=draw(st.dictionaries(keys, tensors, max_size=2)),
        parent=draw(st.none() | digests),
        source=draw(keys),
    )


@st.composite
def adapters(draw: st.DrawFn) -> AdapterManifest:
    """An adapter with its factors and replacements in order."""
    base = draw(digests)
    held = draw(st.lists(factors(st.just(base)), min_size=1, max_size=3, unique_by=lambda factor: factor.site))
    replaced = draw(st.dictionaries(identifiers, tensors, max_size=2))
    return AdapterManifest(
        base=base,
        factors=tuple(sorted(held, key=lambda factor: factor.site)),
        family=draw(keys),
        initializer=draw(keys),
        payload=draw(st.sampled_from(["portable", "native", "resume"])),
        full_replacements=tuple(FullReplacement(name=name, value=replaced[name]) for name in sorted(replaced)),
        training=draw(st.dictionaries(keys, identifiers, max_size=2)),
    )


members = st.builds(ResolvedMember, adapter=digests, weight=finite)
choices = st.builds(
    Choices,
    rank=st.none() | st.integers(1, SAFE),
    ties=st.none() | st.builds(TiesChoices, density=densities),
    dare=st.none() | st.builds(DareChoices, density=densities, seed=seeds),
    prune=st.none() | st.builds(PruneChoices, density=densities),
    svd=st.none() | st.builds(SvdChoices),
    dtype=st.builds(DtypeChoices),
)


@st.composite
def specs(draw: st.DrawFn) -> ResolvedSpec:
    """A resolved spec, members in identity order."""
    lane: Lane = draw(lanes)
    return ResolvedSpec(
        base=draw(digests),
        lane=lane,
        members=in_identity_order(lane, tuple(draw(st.lists(members, min_size=1, max_size=3)))),
        method=draw(methods),
        alias=draw(st.none() | identifiers),
        space=draw(st.none() | spaces),
        choices=draw(choices),
        acknowledge=tuple(sorted(draw(st.sets(codes, max_size=2)))),
    )


statuses = st.builds(
    CoordinateStatus,
    status=st.sampled_from(get_args(Status)),
    reason=keys,
    evidence=st.sampled_from(["derived", "executed", "source_reported", "not_verified"]),
)
findings = st.builds(
    Finding,
    code=codes,
    predicate=st.sampled_from(COMPONENTS),
    coordinate=st.sampled_from(COORDINATES),
    severity=st.sampled_from(get_args(Severity)),
    subject=identifiers,
    path=st.lists(text | st.integers(-SAFE, SAFE), max_size=3).map(tuple),
    expected=text,
    observed=text,
)
decisions = st.builds(
    Decision,
    outcome=st.sampled_from(["admitted", "conditional", "refused"]),
    vector=st.builds(Vector, **dict.fromkeys(COORDINATES, statuses)),
    predicates=st.builds(Predicates, **dict.fromkeys(COMPONENTS, st.sampled_from(get_args(PredicateStatus)))),
    findings=st.lists(findings, max_size=2).map(tuple),
    inputs=digests,
)
admissions = st.builds(
    AdmissionManifest,
    spec=specs(),
    rules=identifiers,
    decision=decisions,
    acknowledged=st.lists(codes, max_size=2).map(tuple),
)
masks = st.builds(MaskRef, adapter=digests, role=st.sampled_from(["delta", "a", "b"]), mask=digests, retained=counts)


@st.composite
def compositions(draw: st.DrawFn) -> CompositionManifest:
    """A composition with each member and module once, in order."""
    parents = draw(st.lists(members, min_size=1, max_size=3, unique_by=lambda member: member.adapter))
    method: Method = draw(methods)
    records = [
        ModuleRecord(
            module=module,
            input_ranks=tuple(draw(st.lists(counts, max_size=2))),
            output_rank=draw(counts),
            retained=tuple(draw(st.lists(counts, max_size=2))),
            masks=tuple(draw(st.lists(masks, max_size=1))),
        )
        for module in sorted(draw(st.sets(modules, max_size=2)))
    ]
    return CompositionManifest(
        admission=draw(digests),
        base=draw(digests),
        lane="static_fusion",
        members=in_identity_order("static_fusion", tuple(parents)),
        method=method,
        alias=draw(st.none() | identifiers),
        space=draw(spaces),
        choices=draw(choices),
        stochastic=draw(
            st.none() | st.builds(StochasticIdentity, generator=identifiers, seed=identifiers, density=finite)
        ),
        operator=f"{method}/{draw(st.integers(1, 99))}",
        representation=draw(identifiers),
        output=draw(digests),
        modules=tuple(records),
        oracle_reports=tuple(draw(st.lists(digests, max_size=2))),
        claims=draw(st.builds(Claims, quality=st.just(False) | digests, latency=st.just(False) | digests)),
    )


conversions = st.builds(
    ConversionManifest,
    parent=st.just(PREFIX + "0" * 64),
    initial=digests,
    base=digests,
    rule=st.sampled_from(RULES),
    operator=st.sampled_from(RULES).map(lambda rule: f"{rule}/1"),
    store=st.sampled_from(get_args(Store)),
    acknowledged=st.sets(codes, max_size=2).map(lambda found: tuple(sorted(found))),
    output=st.just(PREFIX + "f" * 64),
)


@st.composite
def publications(draw: st.DrawFn) -> PublicationManifest:
    """A generation with a possible history."""
    generation = draw(st.integers(1, SAFE))
    return PublicationManifest(
        channel=draw(names),
        generation=generation,
        artifacts=tuple(draw(st.lists(digests, min_size=1, max_size=3))),
        previous=None if generation == 1 else draw(digests),
        reason=draw(st.from_regex(r"[a-z][a-z0-9_-]{0,8}", fullmatch=True)),
        restored=None if generation == 1 else draw(st.none() | st.integers(1, generation - 1)),
        kv_identity=draw(digests),
    )


statements = st.builds(
    StatementManifest,
    topic=st.sampled_from(get_args(Topic)),
    subject=digests,
    body=st.dictionaries(
        identifiers,
        text | st.integers(-SAFE, SAFE) | st.booleans() | st.lists(text, max_size=2).map(tuple) | st.none(),
        max_size=3,
    ),
    author=identifiers,
    previous=st.none() | digests,
)
kv_identities = st.builds(
    KvIdentity,
    base=digests,
    weight_transforms=st.lists(digests, max_size=2).map(tuple),
    channel=names,
    generation=st.integers(1, SAFE),
)
MANIFESTS: dict[str, st.SearchStrategy[Manifest]] = {
    "base": bases(),
    "factor": factors(),
    "adapter": adapters(),
    "admission": admissions,
    "composition": compositions(),
    "conversion": conversions,
    "publication": publications(),
    "statement": statements,
    "kv_identity": kv_identities,
}
