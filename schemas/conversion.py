"""The conversion manifest: one adapter, or a dense model, made from an adapter by a named rule."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self, get_args

from pydantic import Field, StringConstraints, model_validator

from schemas.decision import Code
from schemas.digests import Digest
from schemas.model import Manifest

Rule = Literal["portable", "compact", "cast", "balanced", "rebase", "plain_lora", "dense"]
Store = Literal["F64", "F32", "BF16", "F16"]

RULES: Final[tuple[Rule, ...]] = get_args(Rule)
CONVERSION_OPERATORS: Final[dict[Rule, str]] = {rule: f"{rule}/1" for rule in RULES}
"""Raised when a rule's output changes for the same inputs."""


class ConversionManifest(Manifest):
    """A recorded transformation (docs/concepts.md, "Conversion"). What it read is an adapter, and so is what it wrote;
    the rule `dense` alone writes a base, the model with the adapter in its weights.

    `initial` is the snapshot from which a native adapter was trained, `store` the dtype factors were rounded to (null:
    as they were), `base` the base of the output, which only a rebase changes. `acknowledged` holds the conditions that
    were accepted by name.
    """

    KIND: ClassVar[str] = "conversion"
    kind: Literal["conversion"] = "conversion"
    parent: Digest
    initial: Digest | None
    base: Digest
    rule: Rule
    operator: Annotated[str, StringConstraints(pattern=r"^[a-z_]+/[1-9][0-9]*$")]
    store: Store | None
    acknowledged: tuple[Code, ...] = Field(default=())
    output: Digest

    @model_validator(mode="after")
    def _rule_has_its_fields(self) -> Self:
        if self.rule == "portable" and self.initial is None:
            raise ValueError("a portable conversion names the initial snapshot")
        if self.rule == "cast" and self.store is None:
            raise ValueError("a cast names its dtype")
        if list(self.acknowledged) != sorted(set(self.acknowledged)):
            raise ValueError("acknowledged codes are sorted, each once")
        if self.output == (self.base if self.rule == "dense" else self.parent):
            raise ValueError("what a conversion leaves as it was is no conversion")
        return self
