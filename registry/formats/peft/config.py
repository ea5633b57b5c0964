"""adapter_config.json: the settings that decide what an adapter computes."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

from registry.formats.fields import Fields
from registry.formats.peft import parse
from registry.formats.peft.fields import CONFIG, refuse_features, refuse_method
from registry.formats.peft.initializers import Initializer, read_initializer
from registry.formats.peft.parse import Bias
from registry.formats.peft.patterns import Era, Matcher, ModulePattern, eras_of, release_of
from registry.formats.report import refuse_all
from schemas.adapter import ScaleRule
from schemas.canonical import JsonObject

Method = Literal["LORA", "ADALORA"]


@dataclass(frozen=True)
class LoraSettings:
    """What decides the function: which modules, at which rank and scale, and which parts beside the factors.

    Attributes:
        rank, alpha, rule: of modules no pattern speaks of; AdaLoRA's rank is the initial one.
        triplets: AdaLoRA's rank per module after allocation.
        eras: the pattern rules the config may have been written for.
        extras: roles every factor of a Linear layer must have beside a and b.
        group: input features QA-LoRA pools into one; 1 elsewhere.
        saved: names of fully trained modules.
        parameters: names of stacked parameters adapted as a whole.
        oriented: whether b has a stacked parameter's outputs by the model's own layout, as PEFT does since 0.19;
            before, b had its last axis.
        tokens: trained rows by name of their table; the empty name is the input embedding.
        invocation: the tokens that switch an activated LoRA on.
    """

    method: Method
    rank: int
    alpha: float
    rule: ScaleRule
    rank_patterns: tuple[ModulePattern, ...]
    alpha_patterns: tuple[ModulePattern, ...]
    eras: tuple[Era, ...]
    triplets: dict[str, int]
    target: Matcher
    exclude: Matcher
    layers: frozenset[int]
    layer_patterns: tuple[re.Pattern[str], ...]
    initializer: Initializer
    dora: bool
    kasa: bool
    lora_bias: bool
    bias: Bias
    group: int
    saved: tuple[str, ...]
    parameters: tuple[str, ...]
    oriented: bool
    tokens: dict[str, tuple[int, ...]]
    invocation: tuple[int, ...]

    @property
    def extras(self) -> frozenset[str]:
        """Roles the flags promise on every factor."""
        promised = {"magnitude": self.dora, "diag": self.kasa, "bias": self.lora_bias, "E": self.method == "ADALORA"}
        return frozenset(role for role, there in promised.items() if there)


def read_settings(document: JsonObject) -> LoraSettings:
    """The settings of an adapter_config.json.

    Raises:
        RefusedError: `METHOD_UNSUPPORTED` alone; or `CONFIG_FIELD_UNKNOWN`, `FEATURE_UNSUPPORTED`,
            `CONFIG_FIELD_MISSING`, `CONFIG_FIELD_TYPE`, `CONFIG_FIELD_VALUE`, `CONFIG_FIELD_CONFLICT`,
            `PATTERN_INVALID`, all at once.
    """
    fields = Fields(document, CONFIG)
    method = fields.text("peft_type")
    if method not in {"LORA", "ADALORA", ""}:
        refuse_method(fields, method)
        refuse_all(fields.problems)
    refuse_features(fields)
    settings = _settings(fields, "ADALORA" if method == "ADALORA" else "LORA")
    _refuse_conflicts(fields, settings)
    refuse_all(fields.problems)
    return settings


def _settings(fields: Fields, method: Method) -> LoraSettings:
    adaptive = method == "ADALORA"
    rank = fields.integer("init_r", 12) if adaptive else fields.integer("r")
    parse.check_rank(fields, "init_r" if adaptive else "r", rank)
    ranks = () if adaptive else parse.patterns(fields, "rank_pattern")
    alphas = parse.patterns(fields, "alpha_pattern")
    version = fields.text("peft_version", "")
    return LoraSettings(
        method=method,
        rank=rank,
        alpha=fields.number("lora_alpha"),
        rule="alpha_over_sqrt_r" if fields.boolean("use_rslora", False) and not adaptive else "alpha_over_r",
        rank_patterns=ranks,
        alpha_patterns=alphas,
        eras=eras_of(version, (pattern.key for pattern in (*ranks, *alphas))),
        triplets=parse.triplets(fields) if adaptive else {},
        target=parse.matcher(fields, "target_modules"),
        exclude=parse.matcher(fields, "exclude_modules"),
        layers=parse.layers(fields),
        layer_patterns=parse.layer_patterns(fields),
        initializer=read_initializer(fields, fields.document.get("init_lora_weights")),
        dora=fields.boolean("use_dora", False),
        kasa=bool(fields.table("kasa_config")),
        lora_bias=fields.boolean("lora_bias", False),
        bias=parse.bias(fields),
        group=fields.integer("qalora_group_size", 16) if fields.boolean("use_qalora", False) else 1,
        saved=parse.names(fields, "modules_to_save"),
        parameters=parse.names(fields, "target_parameters"),
        oriented=(release_of(version) or (0, 0)) >= (0, 19),
        tokens=parse.tokens(fields),
        invocation=parse.integers(fields, "alora_invocation_tokens", fields.document.get("alora_invocation_tokens")),
    )


def _refuse_conflicts(fields: Fields, settings: LoraSettings) -> None:
    by_layer = fields.document.get("layers_to_transform") is not None
    by_pattern = isinstance(fields.document.get("target_modules"), str)
    if fields.document.get("target_modules") is None and not settings.parameters:
        fields.refuse("CONFIG_FIELD_MISSING", "target_modules", "module names or a pattern", "no such field")
    if by_pattern and (by_layer or settings.layer_patterns):
        fields.refuse("CONFIG_FIELD_CONFLICT", "layers_to_transform", "a list of target_modules", "a pattern")
    elif settings.layer_patterns and not by_layer:
        fields.refuse("CONFIG_FIELD_CONFLICT", "layers_pattern", "layers_to_transform beside it", "no such field")
    if settings.method == "ADALORA" and (settings.dora or settings.initializer.payload == "native"):
        fields.refuse("CONFIG_FIELD_CONFLICT", "use_dora", "AdaLoRA by itself", "another variant beside it")
