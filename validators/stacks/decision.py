"""From the axes of a stack to its vector and outcome: the gravest rule decides a coordinate (V 0x09B, 0x09J)."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Final, get_args

from schemas.decision import CONDITIONAL, COORDINATES, REFUSING, Coordinate, CoordinateStatus, Outcome, Status, Vector
from schemas.stack import StackDecision, VariantStack
from validators.stacks.evidence import evidence_rules
from validators.stacks.mechanisms import artifact_state
from validators.stacks.rules import RULES, Rule

_GROUNDS: Final[dict[Coordinate, tuple[str, str, str]]] = {
    "algebra": (
        "one_effective_weight",
        "Base, rank, scale, initializer and coordinates, in this order, give one effective weight.",
        "V 0x09C",
    ),
    "config": ("every_axis_accepted", "The pinned constructor refuses none of the axes and ignores none.", "V 0x09B"),
    "forward": ("layer_executes_the_axes", "The pinned layer executes the declared operator.", "V 0x09B"),
    "backward": ("one_owner_for_each_factor", "Every trained tensor has its gradient and one owner.", "V 0x09C"),
    "artifact": ("state_is_the_union", "The union of the parts' state rebuilds the operator.", "V 0x09H"),
    "merge": (
        "dense_form_defined",
        "A dense form is defined; packed codes are read, added to and quantized anew, never changed in place.",
        "V 0x0AH",
    ),
    "runtime": ("final_operator_runs", "What runs is the operator that was trained.", "V 0x09C"),
    "evidence": ("no_composition_to_show", "At most one mechanism: its own source is the evidence.", "V 0x09B"),
}
_GRAVITY: Final[tuple[Status, ...]] = get_args(Status)
_NOT_REACHED: Final = ("not_reached", "The proof stops at a coordinate before this one that refuses.", "V 0x0AJ")


def decide_stack(stack: VariantStack) -> StackDecision:
    """The vector of a stack, its outcome, every reason in words and the state its artifact must hold."""
    ruled = _rulings(stack)
    return StackDecision(
        stack=stack,
        outcome=_outcome(ruled.values()),
        vector=Vector(**{name: _status(rule) for name, rule in ruled.items()}),
        reasons={rule.reason: f"{rule.sentence} ({rule.source})" for rule in ruled.values()},
        artifact=artifact_state(stack),
    )


def _rulings(stack: VariantStack) -> Mapping[Coordinate, Rule]:
    """The deciding rule of each coordinate.

    The proof stops at the first coordinate that refuses; one behind it to which no rule objects was not reached.
    """
    rules = [rule for rule in (*RULES, *evidence_rules(stack)) if rule.applies(stack)]
    ruled: dict[Coordinate, Rule] = {}
    refused = False
    for name in COORDINATES:
        spoken = (rule for rule in rules if rule.coordinate == name)
        gravest = max((*spoken, _ground(name)), key=lambda rule: _GRAVITY.index(rule.status))
        ruled[name] = _ground(name, reached=False) if refused and gravest.status == "pass" else gravest
        refused = refused or gravest.status in REFUSING
    return ruled


def _ground(name: Coordinate, *, reached: bool = True) -> Rule:
    """What stands where no rule objects."""
    reason, sentence, source = _GROUNDS[name] if reached else _NOT_REACHED
    status: Status = "pass" if reached else "unverified"
    return Rule(name, status, reason, lambda _: True, sentence, source, derived=True)


def _status(rule: Rule) -> CoordinateStatus:
    return CoordinateStatus(status=rule.status, reason=rule.reason, evidence=rule.evidence)


def _outcome(ruled: Collection[Rule]) -> Outcome:
    """Refused before conditional before admitted for reload testing (V 0x09J)."""
    statuses = {rule.status for rule in ruled}
    if statuses & REFUSING:
        return "refused"
    return "conditional" if statuses & CONDITIONAL else "admitted"
