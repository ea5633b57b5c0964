"""What serving engines can load, as their sources say, checked before anything is written.

vLLM 0.33.0 (`lora/peft_helper.py`, `lora/utils.py`, `config/lora.py`): DoRA, lora_bias, biases, base-changing
initializers and saved modules other than one classification head are errors; rsLoRA and patterns are read; the rank
limit is one of nine. SGLang 0.5.23 (`srt/lora/lora.py`, `lora_manager.py`, `mem_pool.py`): the scale is alpha / r
whatever the config says, DoRA is an error, saved modules and biases are dropped without a word, fused layers are
stacked from all their parts. LoRAX (`adapters/lora.py` at 03679f3): rsLoRA is read and patterns are not, only `lora_A`
and `lora_B` of Linear layers are, and a layer type that lacks factors in one layer is dropped in all.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Final, Literal, get_args

from registry.errors import Problem
from registry.formats.base.modules import layers
from registry.service.plain import FUSED, LINEAR, leaf
from registry.service.recipes import COMPACT
from schemas.adapter import AdapterManifest, FactorManifest
from schemas.base import BaseManifest

EngineName = Literal["vllm", "sglang", "lorax"]
ENGINE_NAMES: Final[tuple[EngineName, ...]] = get_args(EngineName)
Place = tuple[str, ...]


@dataclass(frozen=True)
class Engine:
    """One engine's limits.

    Attributes:
        title: engine and release these limits were read from.
        rank: the limit where none is given; null: none.
        ranks: the limits that may be given; empty: any.
        rslora, patterns: whether it reads these fields.
        heads: names of saved modules it loads.
        tables: whether it loads factors of embedding tables.
        whole_groups: whether a fused layer needs factors for each part.
        every_layer: whether a leaf name needs factors in each layer.
    """

    title: str
    rank: int | None = None
    ranks: tuple[int, ...] = ()
    rslora: bool = False
    patterns: bool = False
    heads: frozenset[str] = frozenset()
    tables: bool = False
    whole_groups: bool = False
    every_layer: bool = False


ENGINES: Final[Mapping[EngineName, Engine]] = {
    "vllm": Engine(
        "vLLM 0.33.0",
        rank=16,
        ranks=(1, 8, 16, 32, 64, 128, 256, 320, 512),
        rslora=True,
        patterns=True,
        heads=frozenset({"classifier", "score"}),
        tables=True,
    ),
    "sglang": Engine("SGLang 0.5.23", tables=True, whole_groups=True),
    "lorax": Engine("LoRAX at 03679f3", rslora=True, every_layer=True),
}
_PLAIN: Final = "Export with the profile plain-lora, which bakes the scale, pads the rank and fills in zeros."
_DENSE: Final = "Make a dense release, or serve it with PEFT."


def engine_problems(
    adapter: AdapterManifest, base: BaseManifest, name: EngineName, max_rank: int | None, *, plain: bool
) -> list[Problem]:
    """Why an engine would refuse an adapter, or load it as another function.

    Args:
        adapter: what is to be handed out.
        base: whose layers it adapts.
        name: the engine.
        max_rank: the limit it was started with; null takes its own.
        plain: whether it goes out as plain LoRA, which settles scale, ranks and missing parts.

    Problems: `ENGINE_RANK`, `ENGINE_UNSUPPORTED`.
    """
    engine = ENGINES[name]
    found = [*_rank_problems(adapter, engine, max_rank), *_factor_problems(adapter, base, engine)]
    found += _whole_problems(adapter, engine)
    return found if plain else [*found, *_scale_problems(adapter, engine), *_part_problems(adapter, base, engine)]


def _rank_problems(adapter: AdapterManifest, engine: Engine, max_rank: int | None) -> Iterator[Problem]:
    limit = engine.rank if max_rank is None else max_rank
    if engine.ranks and limit is not None and limit not in engine.ranks:
        hint = "Start the engine with one of its limits and name that one."
        expected = f"one of {', '.join(map(str, engine.ranks))} as max_lora_rank of {engine.title}"
        yield _problem("ENGINE_RANK", ("max_lora_rank",), expected, str(limit), hint)
    rank = max(factor.rank for factor in adapter.factors)
    if limit is not None and rank > limit:
        enough = min((given for given in engine.ranks if given >= rank), default=rank)
        hint = f"Start the engine with --max-lora-rank {enough} or more, or compose with delta_svd at rank {limit}."
        yield _problem("ENGINE_RANK", ("rank",), f"at most {limit} for {engine.title}", str(rank), hint)


def _factor_problems(adapter: AdapterManifest, base: BaseManifest, engine: Engine) -> Iterator[Problem]:
    known = {} if isinstance(base.weights, str) else layers(base)
    seen: set[str] = set()
    for factor in adapter.factors:
        layer = known.get(factor.module)
        for feature, hint in _features(factor, "linear" if layer is None else layer.kind, engine):
            if feature not in seen:
                seen.add(feature)
                yield _unsupported(engine, ("factors", factor.module), feature, hint)


def _features(factor: FactorManifest, kind: str, engine: Engine) -> Iterator[tuple[str, str]]:
    told = {"magnitude": "DoRA", "bias": "a bias in lora_B"}
    for role in sorted(factor.extra.keys() - {"E"}):
        yield told.get(role, f"a further tensor, {role}"), _DENSE
    if factor.site[1:] != (-1, -1, "") or factor.order == "B[o,r,e]A[e,r,i]":
        yield "factors of experts", _DENSE
    if kind == "conv2d" or (kind == "embedding" and not engine.tables):
        yield f"factors of a layer of kind {kind}", _DENSE


def _whole_problems(adapter: AdapterManifest, engine: Engine) -> Iterator[Problem]:
    if adapter.payload != "portable" or adapter.initializer != "none":
        hint = "Convert it to portable: `registry convert REF --to portable --initial SNAPSHOT`."
        yield _unsupported(engine, ("initializer",), f"native factors of {adapter.initializer}", hint)
    for item in adapter.full_replacements:
        if leaf(item.name.rpartition(".")[0]) not in engine.heads:
            kind = "a trained bias" if item.name.endswith(".bias") else "modules_to_save"
            yield _unsupported(engine, ("full_replacements", item.name), kind, _DENSE)


def _scale_problems(adapter: AdapterManifest, engine: Engine) -> Iterator[Problem]:
    factors = adapter.factors
    if any("E" in factor.extra for factor in factors):
        yield _unsupported(engine, ("factors", "extra", "E"), "AdaLoRA's triplets", COMPACT)
    stabilised = [factor for factor in factors if factor.scale.rule == "alpha_over_sqrt_r" and factor.rank > 1]
    if stabilised and not engine.rslora:
        root = max(factor.rank for factor in stabilised) ** 0.5
        yield _unsupported(engine, ("scale",), f"rsLoRA, read as alpha / r and {root:.3g} times too weak", _PLAIN)
    if len({(factor.rank, factor.scale.alpha) for factor in factors}) > 1 and not engine.patterns:
        yield _unsupported(engine, ("scale",), "rank_pattern or alpha_pattern, which it does not read", _PLAIN)


def _part_problems(adapter: AdapterManifest, base: BaseManifest, engine: Engine) -> Iterator[Problem]:
    """Parts of fused layers, or layers of one leaf name, without factors."""
    known = {} if isinstance(base.weights, str) else layers(base)
    linear = {name for name, layer in known.items() if layer.kind in LINEAR}
    adapted = {factor.module for factor in adapter.factors}
    wanted: set[str] = set()
    if engine.whole_groups:
        groups = ((name.rpartition(".")[0], group) for name in adapted for group in FUSED if leaf(name) in group)
        wanted |= {f"{parent}.{part}" for parent, group in groups for part in group}
    if engine.every_layer:
        leaves = {leaf(name) for name in adapted}
        wanted |= {name for name in linear if leaf(name) in leaves}
    missing = sorted(wanted & linear - adapted)
    if missing:
        feature = f"layers without factors, {missing[0]} and {len(missing) - 1} more" if missing[1:] else missing[0]
        yield _unsupported(engine, ("factors",), feature, _PLAIN)


def _unsupported(engine: Engine, path: Place, feature: str, hint: str) -> Problem:
    return _problem("ENGINE_UNSUPPORTED", path, f"what {engine.title} loads as it is", feature, hint)


def _problem(code: str, path: Place, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, path=path, expected=expected, observed=observed, hint=hint)
