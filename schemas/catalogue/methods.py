"""The method catalogue: one row a system, with its contracts, its state, its evidence and its witness."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, Final, Literal, Self

import yaml
from pydantic import Field, StringConstraints, model_validator

from schemas.adapter import ScaleRule
from schemas.catalogue.model import Sentence
from schemas.methods import Lane
from schemas.model import Identifier, Key, Record, validate

Kind = Literal["adapter", "pool", "composition", "alternative", "compute"]
"""What a key names: one adapter's family, a family of several under a router, an operation on adapters, an alternative
that is named and no more, or a base whose computation is routed."""
Form = Literal[
    "additive",
    "triplets",
    "normalized",
    "residual",
    "coupled",
    "activated",
    "pooled_input",
    "block_diagonal",
    "diagonal",
    "routed",
]
"""How the tensors of a factor become an update; only `additive` is the sum of s B A on the base itself."""
Payload = Literal["portable", "native", "resume"]
Grade = Literal["derived", "executed", "source_reported", "not_verified"]

Section = Annotated[str, StringConstraints(pattern=r"^[VCR] 0x[0-9A-F]{2,3}([A-Z]{1,2}([.][0-9])?)?$")]


class Axes(Record):
    """The eight axes of a stack (V 0x09A), plain LoRA where a row does not say otherwise."""

    base: Key = "dense"
    rank: Key = "fixed"
    scale: Key = "alpha_over_r"
    initializer: Key = "zero_b"
    parameterization: Key = "additive"
    optimizers: tuple[Key, ...] = ("adamw",)
    artifact: Key = "native"
    adapters: Key = "one"


class Surface(Record):
    """What one source says: a paper, or code at a pinned revision."""

    source: Identifier
    says: Sentence


class Witness(Record):
    """The check of an oracle that executes a claim."""

    oracle: Key
    check: Identifier


class Claim(Record):
    """One thing said about a method and how far it is shown; executed means that a check computes it."""

    claim: Sentence
    evidence: Grade
    witness: Witness | None = None

    @model_validator(mode="after")
    def _executed_is_witnessed(self) -> Self:
        if (self.evidence == "executed") != (self.witness is not None):
            raise ValueError("a claim is executed exactly when a check witnesses it")
        return self


class Contract(Record):
    """What an adapter manifest of the family holds.

    `roles` are the tensors every factor has beside a and b, `optional` those it may have, `resume` those a payload to
    be trained on needs too. `training` names the fields of the manifest's training record. `quantized` demands a base
    that is stored by a quantizer; `shared_a` one a for all experts of a module.
    """

    form: Form
    scale: Annotated[tuple[ScaleRule, ...], Field(min_length=1)]
    roles: tuple[Identifier, ...] = ()
    optional: tuple[Identifier, ...] = ()
    resume: tuple[Identifier, ...] = ()
    initializers: Annotated[tuple[Key, ...], Field(min_length=1)] = ("none",)
    payloads: Annotated[tuple[Payload, ...], Field(min_length=1)] = ("portable",)
    training: tuple[Key, ...] = ()
    quantized: bool = False
    shared_a: bool = False


class Method(Record):
    """One row.

    `code` is null where the page of methods names no difference between paper and pinned code. `state` is what has to
    be stored so that the method can be used again; `oracle` executes its algebra, and an alternative has none.
    """

    key: Key
    name: Identifier
    kind: Kind
    lane: Lane | None
    sections: Annotated[tuple[Section, ...], Field(min_length=1)] | Literal["not_in_the_documents"]
    axes: Axes | None
    paper: Surface
    code: Surface | None = None
    state: tuple[Key, ...]
    confused: Annotated[tuple[Sentence, ...], Field(min_length=1)]
    claims: tuple[Claim, ...]
    oracle: Key | None
    contract: Contract | None = None

    @model_validator(mode="after")
    def _kind_has_its_fields(self) -> Self:
        family = self.kind in ("adapter", "pool")
        if family != (self.contract is not None) or family != (self.axes is not None):
            raise ValueError("axes and a contract belong to the kinds an adapter can be of, and to no other")
        if (self.kind == "compute") != (self.lane is None):
            raise ValueError("every row but a routed base has a lane")
        return self


_FOLDER: Final = "families"


@cache
def method_keys() -> tuple[str, ...]:
    """Every key, in the order of the alphabet."""
    folder = files(__package__).joinpath(_FOLDER)
    return tuple(sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml")))


@cache
def method(key: str) -> Method | None:
    """The row of a key, read once; none where the catalogue has no such key.

    Raises:
        RefusedError: `MANIFEST_INVALID`, one problem a field.
    """
    if key not in method_keys():
        return None
    text = files(__package__).joinpath(_FOLDER, f"{key}.yaml").read_text(encoding="utf-8")
    return validate(Method, {"key": key, **yaml.safe_load(text)})


@cache
def methods() -> Mapping[str, Method]:
    """Every row under its key."""
    rows = ((key, method(key)) for key in method_keys())
    return MappingProxyType({key: row for key, row in rows if row is not None})


def family(key: str) -> Contract | None:
    """The contract of an adapter's family; none where the key names no family."""
    row = method(key)
    return row.contract if row is not None else None
