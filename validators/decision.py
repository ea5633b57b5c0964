"""From findings to a decision: eight coordinates, nine predicates, one outcome."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Final

from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.canonical import JsonObject, canonical_bytes
from schemas.composition import ResolvedSpec
from schemas.decision import (
    COMPONENTS,
    COORDINATES,
    Component,
    Coordinate,
    CoordinateStatus,
    Decision,
    Finding,
    Outcome,
    Predicates,
    PredicateStatus,
    Severity,
    Vector,
)
from schemas.digests import Digest, manifest_digest
from schemas.errors import Problem
from schemas.methods import Lane
from validators.codes import CODES
from validators.context import Context, gather
from validators.errors import CouldNotCheckError
from validators.lanes import OWNED
from validators.rules import RULES

RULES_VERSION: Final = "rules/3"
"""Raised when the same inputs may get another answer; it is part of every inputs digest."""

Rule = Callable[[Context], Iterator[Finding]]

_GRAVITY: Final[dict[Severity, int]] = {"note": 0, "condition": 1, "refuse": 2}
_OUTCOMES: Final[tuple[Outcome, ...]] = ("admitted", "conditional", "refused")
_PREDICATES: Final[tuple[PredicateStatus, ...]] = ("pass", "conditional", "fail")


def decide(
    spec: ResolvedSpec,
    base: BaseManifest,
    adapters: Mapping[Digest, AdapterManifest],
    bases: Mapping[Digest, BaseManifest],
    repeating: frozenset[Digest] = frozenset(),
) -> Decision:
    """Judge a resolved spec by every rule.

    Args:
        spec: the question; its `acknowledge` does not change the answer.
        base: the manifest of `spec.base`, the composition's target.
        adapters: the members' manifests by digest.
        bases: the members' own bases by digest.
        repeating: adapters whose factors were seen to hold a part of their base's weights when they were registered.

    Raises:
        CouldNotCheckError: a manifest is missing.
    """
    context = gather(spec, base, adapters, bases, repeating)
    findings = run(RULES, context)
    return Decision(
        outcome=outcome(findings),
        vector=vector(findings),
        predicates=predicates(spec.lane, findings),
        findings=findings,
        inputs=_inputs(context),
    )


def run(rules: Sequence[Rule], context: Context) -> tuple[Finding, ...]:
    """All findings of all rules, by predicate, code, subject and path.

    Raises:
        CouldNotCheckError: `RULES_EMPTY`; no rules would admit everything.
    """
    if not rules:
        raise CouldNotCheckError(
            Problem(code="RULES_EMPTY", expected="at least one rule", observed="none", hint="Reinstall the program.")
        )
    return ordered(found for rule in rules for found in rule(context))


def ordered(findings: Iterable[Finding]) -> tuple[Finding, ...]:
    """Findings by predicate, code, subject and path, so that one question has one answer."""
    return tuple(sorted(findings, key=_order))


def outcome(findings: Iterable[Finding]) -> Outcome:
    """The gravest severity decides."""
    return _OUTCOMES[_gravity(findings)]


def vector(findings: Sequence[Finding]) -> Vector:
    """Each coordinate takes the status of its gravest finding, the first in order among equals (V 0x09B)."""
    return Vector(**{name: _coordinate(name, findings) for name in COORDINATES})


def predicates(lane: Lane, findings: Sequence[Finding]) -> Predicates:
    """Each component by its findings; `none` where the lane does not own it and nothing was found (R 0x09C)."""
    return Predicates(**{name: _predicate(name, lane, findings) for name in COMPONENTS})


def _coordinate(name: Coordinate, findings: Sequence[Finding]) -> CoordinateStatus:
    grave = [found for found in findings if found.coordinate == name and found.severity != "note"]
    if not grave:
        return CoordinateStatus(status="pass", reason="no_rule_objects", evidence="derived")
    gravest = max(grave, key=lambda found: _GRAVITY[found.severity])
    status = CODES[gravest.code].status
    return CoordinateStatus(
        status=status,
        reason=gravest.code.lower(),
        evidence="not_verified" if status == "unverified" else "derived",
    )


def _predicate(name: Component, lane: Lane, findings: Sequence[Finding]) -> PredicateStatus:
    gravity = _gravity(found for found in findings if found.predicate == name)
    return "none" if gravity == 0 and name not in OWNED[lane] else _PREDICATES[gravity]


def _gravity(findings: Iterable[Finding]) -> int:
    return max((_GRAVITY[found.severity] for found in findings), default=0)


def _order(found: Finding) -> tuple[int, str, str, tuple[str, ...]]:
    return COMPONENTS.index(found.predicate), found.code, found.subject, tuple(map(str, found.path))


def _inputs(context: Context) -> Digest:
    spec = context.spec.document()
    del spec["acknowledge"]
    member_bases: JsonObject = {member.digest: member.adapter.base for member in context.members}
    inputs: JsonObject = {"member_bases": member_bases, "rules": RULES_VERSION, "spec": spec}
    if seen := sorted(context.repeating & member_bases.keys()):
        inputs["repeating"] = list(seen)
    return manifest_digest("inputs", canonical_bytes(inputs))
