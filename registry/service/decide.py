"""Deciding on a composition spec and storing the decision, also when it refuses."""

from __future__ import annotations

from dataclasses import dataclass

from registry.db import Change, Reader, manifests, statements
from registry.errors import DecisionRefusedError, NotAcknowledgedError
from registry.service import held, resolve
from registry.service.composer import ComposeOrder
from registry.service.context import Context
from registry.service.results import Admitted
from schemas.base import BaseManifest
from schemas.composition import AdmissionManifest, ResolvedMember, ResolvedSpec, in_identity_order
from schemas.decision import Decision
from schemas.digests import Digest
from schemas.spec import CompositionSpec, choices, named_method
from validators import RULES_VERSION, decide, problem_of


@dataclass(frozen=True)
class Question:
    """A resolved spec and the decision on it."""

    spec: ResolvedSpec
    decision: Decision

    @property
    def acknowledged(self) -> tuple[str, ...]:
        """The conditional codes that the spec accepts by name."""
        return tuple(sorted(conditions(self.decision) & set(self.spec.acknowledge)))

    @property
    def proceeds(self) -> bool:
        """Whether composition may start."""
        return self.decision.outcome != "refused" and conditions(self.decision) <= set(self.spec.acknowledge)

    @property
    def answer(self) -> Admitted:
        """The answer before anything is stored."""
        return Admitted(outcome=self.decision.outcome, decision=self.decision, acknowledged=self.acknowledged)


def ask(context: Context, spec: CompositionSpec) -> Question:
    """Resolve a spec and decide on it; nothing is stored."""
    context.require("compose", spec.name)
    with context.database.reading() as reader:
        base = resolve.base_of(reader, spec.base)
        members = _members(reader, spec)
        resolved = _resolved(spec, base.digest, members)
        adapters = held.adapters(reader, (member.adapter for member in members))
        bases = {base: manifests.load(reader, base, BaseManifest) for base in manifests.bases_of(reader, adapters)}
        repeating = frozenset(digest for digest in adapters if _repeats_base(reader, digest))
        return Question(resolved, decide(resolved, base, adapters, bases, repeating))


def store(context: Context, question: Question) -> Admitted:
    """Store the decision as an immutable admission."""
    admission = AdmissionManifest(
        spec=question.spec, rules=RULES_VERSION, decision=question.decision, acknowledged=question.acknowledged
    )

    def work(change: Change) -> None:
        if manifests.put(change, admission):
            change.note(admission.digest, {"outcome": question.decision.outcome})

    context.database.change("composition.admit", context.principal, work)
    return question.answer.model_copy(update={"admission": admission.digest})


def require_proceeding(answer: Admitted) -> Admitted:
    """Return an answer that proceeds.

    Raises:
        DecisionRefusedError: the decision refuses.
        NotAcknowledgedError: it is conditional, and a condition is not acknowledged.
    """
    decision, admission = answer.decision, answer.admission or ""
    if answer.outcome == "refused":
        problems = [problem_of(finding) for finding in decision.refusals]
        raise DecisionRefusedError(*problems, admission=admission, decision=decision.document())
    waiting = conditions(decision) - set(answer.acknowledged)
    if waiting:
        problems = [problem_of(finding) for finding in decision.findings if finding.code in waiting]
        raise NotAcknowledgedError(*problems, admission=admission, decision=decision.document())
    return answer


def order_of(context: Context, spec: ResolvedSpec) -> ComposeOrder:
    """What the composer needs for an admitted spec."""
    return ComposeOrder(spec, held.stored(context, (member.adapter for member in spec.members)))


def _repeats_base(reader: Reader, adapter: Digest) -> bool:
    """Whether registration saw the base in the factors."""
    noted = (statement.body.get("conditions") for statement in statements.of(reader, adapter))
    return any(isinstance(conditions, tuple) and "BASE_REPEATED" in conditions for conditions in noted)


def _members(reader: Reader, spec: CompositionSpec) -> tuple[ResolvedMember, ...]:
    named = [resolve.digest_of(reader, member.ref) for member in spec.members]
    resolve.refuse_yanked(reader, named)
    return tuple(
        ResolvedMember(adapter=resolve.adapter_digest(reader, digest), weight=member.weight)
        for digest, member in zip(named, spec.members, strict=True)
    )


def _resolved(spec: CompositionSpec, base: Digest, members: tuple[ResolvedMember, ...]) -> ResolvedSpec:
    method, alias, space = named_method(spec)
    return ResolvedSpec(
        base=base,
        lane=spec.lane,
        members=in_identity_order(spec.lane, members),
        method=method,
        alias=alias,
        space=space,
        choices=choices(spec, method, space),
        acknowledge=tuple(sorted(set(spec.acknowledge))),
    )


def conditions(decision: Decision) -> set[str]:
    """The codes that have to be acknowledged."""
    return {finding.code for finding in decision.findings if finding.severity == "condition"}
