"""Admitting the release state of a routed or continual lane: decide, store the decision, store the candidate."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import ValidationError

from registry.db import Change, Reader, manifests, names
from registry.errors import Problem, UsageProblemError
from registry.service import histories, resolve, routers
from registry.service.composer import Additivity
from registry.service.context import Context
from registry.service.decide import conditions
from registry.service.results import Admitted
from schemas.base import BaseManifest
from schemas.canonical import JsonObject, canonical_bytes
from schemas.composition import AdmissionManifest
from schemas.continual import ContinualStateManifest
from schemas.decision import Decision
from schemas.digests import Digest
from schemas.methods import Lane
from schemas.model import problems_of
from schemas.release import CandidateManifest, ReleaseSpec, ResolvedRelease, product
from schemas.router import RouterManifest
from validators import RULES_VERSION
from validators.lanes import is_dynamic
from validators.routes.release import ReleaseParts, decide_release


@dataclass(frozen=True)
class _Question:
    parts: ReleaseParts
    adapters: tuple[Digest, ...]
    decision: Decision

    @property
    def acknowledged(self) -> tuple[str, ...]:
        return tuple(sorted(conditions(self.decision) & set(self.parts.spec.acknowledge)))

    @property
    def proceeds(self) -> bool:
        return self.decision.outcome != "refused" and conditions(self.decision) <= set(self.parts.spec.acknowledge)


def is_release(document: JsonObject) -> bool:
    """Whether a spec asks to release a lane's own parts; one with members asks to compose them."""
    return "members" not in document and ("router" in document or "state" in document)


def parse(document: JsonObject) -> ReleaseSpec:
    """A release spec. Raises UsageProblemError `SPEC_INVALID`, one problem a field."""
    try:
        return ReleaseSpec.model_validate_json(canonical_bytes(document))
    except ValidationError as error:
        raise UsageProblemError(*problems_of(error, "SPEC_INVALID")) from error


def release(context: Context, spec: ReleaseSpec, *, dry_run: bool = False) -> Admitted:
    """Decide on a release; store the decision, and the candidate when it proceeds.

    Asked for as one static artifact, a routed lane is refused with the residual of the additivity witness on its own
    router and factors.
    """
    question = _ask(context, spec)
    answer = Admitted(outcome=question.decision.outcome, decision=question.decision, acknowledged=question.acknowledged)
    if dry_run:
        return answer

    def work(change: Change) -> Admitted:
        admission = AdmissionManifest(
            spec=question.parts.spec,
            rules=RULES_VERSION,
            decision=question.decision,
            acknowledged=question.acknowledged,
        )
        if manifests.put(change, admission):
            change.note(admission.digest, {"outcome": question.decision.outcome})
        stored = answer.model_copy(update={"admission": admission.digest})
        if not question.proceeds:
            return stored
        return _named(change, spec.name, _candidate(question, admission.digest), stored)

    return context.database.change("release.admit", context.principal, work)


def _ask(context: Context, spec: ReleaseSpec) -> _Question:
    context.require("compose", spec.name)
    with context.database.reading() as reader:
        router = _router(reader, spec.router)
        state = _state(reader, spec.state)
        base = _base(router, state)
        adapters = {**(routers.pool_of(reader, router) if router else {})}
        adapters |= histories.adapters_of(reader, state) if state else {}
        resolve.refuse_yanked(reader, [*adapters, *(part.digest for part in (router, state) if part is not None)])
        found = manifests.load(reader, base, BaseManifest)
        witness = _witness(context, reader, spec.lane, router) if spec.package == "static" else None
    resolved = ResolvedRelease(
        base=base,
        lane=spec.lane,
        router="none" if router is None else router.digest,
        state="none" if state is None else state.digest,
        package=spec.package,
        acknowledge=tuple(sorted(set(spec.acknowledge))),
    )
    parts = ReleaseParts(resolved, found, adapters, router, state, witness)
    return _Question(parts, _order(router, state), decide_release(parts))


def _router(reader: Reader, ref: str | None) -> RouterManifest | None:
    return None if ref is None else manifests.load(reader, resolve.digest_of(reader, ref), RouterManifest)


def _state(reader: Reader, ref: str | None) -> ContinualStateManifest | None:
    return None if ref is None else manifests.load(reader, resolve.digest_of(reader, ref), ContinualStateManifest)


def _base(router: RouterManifest | None, state: ContinualStateManifest | None) -> Digest:
    part = router or state
    if part is None:
        raise UsageProblemError(
            Problem(
                code="RELEASE_EMPTY",
                path=("router",),
                expected="a router, a continual state, or both",
                observed="neither",
                hint="Name the registered router or state to release.",
            )
        )
    return part.base


def _order(router: RouterManifest | None, state: ContinualStateManifest | None) -> tuple[Digest, ...]:
    """The adapters in the order that is identity: tasks where there is a history, else the pool."""
    if state is not None:
        return tuple(task.adapter for task in state.tasks)
    assert router is not None, "a release has a router or a state"
    return tuple(dict.fromkeys(entry.adapter for entry in router.pool))


def _witness(context: Context, reader: Reader, lane: Lane, router: RouterManifest | None) -> str | None:
    if router is None or not is_dynamic(lane):
        return None
    return _words(context.composer.additivity(routers.order_of(context, reader, router)))


def _words(found: Additivity) -> str:
    """Four digits, so that the decision is the same on every machine."""
    if found.module is None:
        return "additivity not tried, no module's gate reads its inputs"
    return f"additivity residual {found.residual:.4g} at {found.module}"


def _candidate(question: _Question, admission: Digest) -> CandidateManifest:
    parts = question.parts
    adapters = tuple(parts.adapters[digest] for digest in question.adapters)
    return CandidateManifest(
        admission=admission,
        base=parts.spec.base,
        lane=parts.spec.lane,
        router=parts.spec.router,
        state=parts.spec.state,
        adapters=question.adapters,
        product=product(parts.spec.base, parts.spec.lane, adapters, parts.router, parts.state),
    )


def _named(change: Change, name: str, candidate: CandidateManifest, answer: Admitted) -> Admitted:
    created = manifests.put(change, candidate)
    assigned = names.assign(change, name, CandidateManifest.KIND, candidate.digest)
    update = {"candidate": candidate.digest, "name": name, "version": assigned.version, "created": created}
    return answer.model_copy(update=update)
