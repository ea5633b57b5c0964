"""Compute contracts: what exactly is routed in a base whose depth, heads or experts are conditional (C 0x08)."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import Annotated, ClassVar, Final, Literal, Self

import yaml
from pydantic import Field, RootModel, StringConstraints, model_validator

from schemas.digests import Digest
from schemas.linked import LinkedManifest
from schemas.model import Count, Finite, Key, ModuleName, NoneLiteral, NotVerified, Record, validate

Word = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9][A-Za-z0-9_.+-]{0,95}$")]
Given = Count | NotVerified | None
Measure = Annotated[Finite, Field(gt=0.0)] | NotVerified | None


class ComputeContract(Record):
    """The twenty-one fields of C 0x08A. Two methods are one only when all of them are equal and none is unknown."""

    routed_object: Word
    decision_unit: Word
    selection_population: Word
    selection_owner: Word
    score_transform: Word
    selection_policy: Word
    admission_policy: Word
    randomness_state: Word
    capacity_unit: Word
    route_weight: Word
    residual_location: Word
    attention_execution: Word
    ffn_execution: Word
    backward_boundary: Word
    training_to_decode: Word
    route_metadata: Word
    kv_row_policy: Word
    kv_payload: Word
    padding_router: Word
    modality_label: Word
    authority: Word


FIELDS: Final = tuple(ComputeContract.model_fields)


class OperatingParameters(Record):
    """Figures of one configuration, beside the fields (C 0x0A): null is not owned, `not_verified` not known.

    `capacity` counts rows a sequence and layer, `threshold` is on the logit; the two capacity factors are those of
    training and of evaluation, which a dependency may keep apart.
    """

    experts: Given = None
    k: Given = None
    capacity: Given = None
    threshold: Finite | NotVerified | None = None
    capacity_factor: Measure = None
    evaluation_capacity_factor: Measure = None
    capacity_minimum: Given = None
    map_heads: Given = None
    no_ops: Given = None
    routed_layers: tuple[Count, ...] | NotVerified = "not_verified"


class BaseLineage(Record):
    """How the base came to be conditional (C 0x07C, 0x07D): the stage, its parent and the rule that cloned experts.

    `lift` digests the recorded rule by which an adapter of the dense parent acts on the clones; `none` where there is
    none.
    """

    stage: Key
    parent: Digest | NotVerified
    clone_rule: Key | NoneLiteral
    trainable: tuple[Key, ...]
    lift: Digest | NoneLiteral = "none"


class ComputeContractManifest(LinkedManifest):
    """One conditional configuration: its method, the 21 fields, the operating parameters and where it came from.

    `route_modules` names the modules of routers, predictors and projectors: whoever changes one of them changes routes.
    """

    KIND: ClassVar[str] = "compute_contract"
    kind: Literal["compute_contract"] = "compute_contract"
    method: Key
    contract: ComputeContract
    parameters: OperatingParameters
    lineage: BaseLineage | NoneLiteral = "none"
    route_modules: tuple[ModuleName, ...] = ()

    @model_validator(mode="after")
    def _modules_are_sorted(self) -> Self:
        if list(self.route_modules) != sorted(set(self.route_modules)):
            raise ValueError("route modules are sorted, each once")
        return self


_Contracts = RootModel[dict[Key, ComputeContract]]


@cache
def built_in() -> Mapping[str, ComputeContract]:
    """The seven contracts that come with the registry, by method.

    Raises:
        RefusedError: `MANIFEST_INVALID`; the file that holds them was changed.
    """
    text = files("schemas").joinpath("contracts.yaml").read_text(encoding="utf-8")
    return MappingProxyType(validate(_Contracts, yaml.safe_load(text)).root)
