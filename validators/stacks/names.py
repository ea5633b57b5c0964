"""From the name people give a stack (`qlora+dora`, `lora+ with dora`, `pissa+rslora(patterned)`) to its axes."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Final

from schemas.errors import Problem, UsageProblemError
from schemas.model import validate
from schemas.stack import VariantStack

WORDS: Final[Mapping[str, Mapping[str, str]]] = {
    "lora": {},
    "qlora": {"base": "nf4"},
    "nf4": {"base": "nf4"},
    "quantized": {"base": "nf4"},
    "rslora": {"scale": "alpha_over_sqrt_r"},
    "adalora": {"rank": "adalora"},
    "qadalora": {"base": "nf4", "rank": "adalora"},
    "dora": {"parameterization": "dora"},
    "qdora": {"base": "nf4", "parameterization": "dora"},
    "pissa": {"initializer": "pissa"},
    "qpissa": {"base": "nf4", "initializer": "pissa"},
    "loftq": {"base": "nf4", "initializer": "loftq"},
    "loftq-config": {"initializer": "loftq_config"},
    "lora+": {"optimizers": "lora_plus"},
    "lora-fa": {"optimizers": "lora_fa"},
    "dense": {"base": "dense"},
    "fixed": {"rank": "fixed"},
    "patterned": {"rank": "patterned"},
    "native": {"artifact": "native"},
    "converted": {"artifact": "converted"},
    "one": {"adapters": "one"},
    "several": {"adapters": "several"},
}
"""Every word of a stack's name and the axes it sets."""

_OTHER_SPELLINGS: Final = {
    "lora_plus": "lora+",
    "lora-plus": "lora+",
    "loraplus": "lora+",
    "lora_fa": "lora-fa",
    "lorafa": "lora-fa",
    "quantised": "quantized",
    "loftq_config": "loftq-config",
    "fixed-rank": "fixed",
    "rank-pattern": "patterned",
    "multiple": "several",
}
_PLUS_METHOD: Final = re.compile(r"(?<![\w-])lora\+(?=[\s+,()]|$)")
"""LoRA+ itself: `lora+dora` is LoRA with DoRA, `lora++dora` and `lora+ with dora` are LoRA+ with DoRA."""
_BETWEEN: Final = re.compile(r"[\s+,&()]+|\b(?:with|and)\b")


def parse_stack(name: str) -> VariantStack:
    """Read a stack's name; its words stand in any order, between `+`, `,`, `&`, brackets, `with`, `and` or spaces.

    PiSSA is read as its portable conversion unless `native` is said: that is the form which leaves its training.

    Raises:
        UsageProblemError: `STACK_EMPTY`, `STACK_WORD_UNKNOWN` or `STACK_CONTRADICTORY`.
    """
    plain = _PLUS_METHOD.sub("lora_plus ", name.lower())
    words = [_OTHER_SPELLINGS.get(word, word) for word in _BETWEEN.split(plain) if word]
    if not words:
        raise UsageProblemError(_problem("STACK_EMPTY", "the methods of a stack", repr(name)))
    unknown = tuple(word for word in words if word not in WORDS)
    if unknown:
        known = f"words among {', '.join(WORDS)}"
        raise UsageProblemError(*(_problem("STACK_WORD_UNKNOWN", known, word) for word in unknown))
    return _stack(words)


def _stack(words: Iterable[str]) -> VariantStack:
    """The axes the words set; a factor may be claimed by two optimizers, every other axis has one value."""
    said: dict[str, dict[str, str]] = defaultdict(dict)
    for word in words:
        for axis, value in WORDS[word].items():
            said[axis].setdefault(value, word)
    optimizers = tuple(said.pop("optimizers", {"adamw": ""}))
    twice = [(axis, tuple(values.values())) for axis, values in said.items() if len(values) > 1]
    if twice:
        raise UsageProblemError(
            *(_problem("STACK_CONTRADICTORY", f"one {axis}", " and ".join(both)) for axis, both in twice)
        )
    axes = {axis: value for axis, values in said.items() for value in values}
    if axes.get("initializer") == "pissa":
        axes.setdefault("artifact", "converted")
    return validate(VariantStack, {**axes, "optimizers": list(optimizers)})


def _problem(code: str, expected: str, observed: str) -> Problem:
    return Problem(
        code=code,
        path=("stack",),
        expected=expected,
        observed=observed[:120],
        hint="Join methods by +, for example qlora+dora, lora+ with dora, pissa+rslora(patterned).",
    )
