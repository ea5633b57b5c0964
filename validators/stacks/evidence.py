"""Who shows that two mechanisms compose: the weakest pair of a stack decides its evidence coordinate (V 0x09B).

The document's ladder, strongest first: a primary source of the composition with a pinned implementation, a pinned
implementation alone, reasoning from the components with a missing contract, equal shapes or accepted flags.
"""

from __future__ import annotations

from typing import Final

from schemas.decision import Status
from schemas.stack import VariantStack
from validators.stacks.mechanisms import pairs
from validators.stacks.rules import Rule

_SHOWN: Final[dict[tuple[str, str], tuple[str, str, tuple[str, str] | None]]] = {
    ("nf4", "dora"): (
        "The DoRA paper describes it and its repository pins a run.",
        "V 0x09D",
        ("variant_lifecycle", "reload error of QDoRA"),
    ),
    ("nf4", "alpha_over_sqrt_r"): (
        "The base and the scale are changed apart; the pinned layer runs both.",
        "V 0x09E",
        ("variant_lifecycle", "reload error of QLoRA+rsLoRA"),
    ),
    ("alpha_over_sqrt_r", "lora_fa"): (
        "The pinned optimizer takes the scale and its tests exercise it.",
        "V 0x09E",
        ("variant_lifecycle", "reload error of LoRA-FA+rsLoRA"),
    ),
    ("alpha_over_sqrt_r", "pissa"): (
        "The pinned conversion keeps the rank-stabilised scale.",
        "V 0x09E",
        ("variant_lifecycle", "reload error of PiSSA+rsLoRA"),
    ),
    ("nf4", "loftq"): ("LoftQ is defined on a low-bit base.", "V 0x07A", ("loftq", "T = 4 factors on their base")),
    ("nf4", "pissa"): ("PiSSA describes the quantized residual.", "V 0x06I", None),
    ("patterned", "alpha_over_sqrt_r"): (
        "The pinned layers compute the scale of each module.",
        "V 0x04I",
        ("rslora", "rsLoRA scales"),
    ),
    ("patterned", "pissa"): (
        "The pinned conversion doubles the patterns.",
        "V 0x06H",
        ("rslora", "classic conversion doubles patterns"),
    ),
}
"""Pairs with a source: why, where, and the check that executes them."""

_PARTLY: Final[dict[tuple[str, str], tuple[str, str, str]]] = {
    ("nf4", "adalora"): (
        "pinned_layer_only",
        "A pinned 4-bit layer exists; no method source describes the composition.",
        "V 0x09E",
    ),
    ("nf4", "lora_fa"): (
        "components_only",
        "Storage and correction are reasoned apart; nobody has shown them together.",
        "V 0x05L",
    ),
}


def evidence_rules(stack: VariantStack) -> tuple[Rule, ...]:
    """One rule for each pair of mechanisms; a pair that no source describes is unverified."""
    return tuple(_rule(pair) for pair in pairs(stack))


def _rule(pair: tuple[str, str]) -> Rule:
    if pair in _SHOWN:
        sentence, source, witness = _SHOWN[pair]
        return _make("pass", "composition_shown", sentence, source, witness)
    if pair in _PARTLY:
        reason, sentence, source = _PARTLY[pair]
        return _make("conditional", reason, sentence, source)
    sentence = f"No source describes {pair[0]} with {pair[1]}; an accepted flag or an equal shape shows nothing."
    return _make("unverified", "no_source_for_pair", sentence, "V 0x09B")


def _make(status: Status, reason: str, sentence: str, source: str, witness: tuple[str, str] | None = None) -> Rule:
    return Rule("evidence", status, reason, lambda _: True, sentence, source, witness)
