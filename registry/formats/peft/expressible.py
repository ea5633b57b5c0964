"""What a PEFT directory cannot say about an adapter, by name, before anything is written."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from registry.formats.peft.names import parameter_position, stacked_modules
from registry.formats.report import problem
from schemas.adapter import AdapterManifest, FactorManifest
from schemas.errors import Problem

EXTRAS: Final = frozenset({"E", "magnitude", "bias"})
FLAGS: Final = {"magnitude": "use_dora", "bias": "lora_bias", "E": "peft_type"}
_WHOLE_HINT: Final = "Convert the adapter, or make a dense release."
TRAINING: Final = frozenset({"invocation_tokens"})


def peft_problems(adapter: AdapterManifest, model_type: str) -> list[Problem]:
    """`ADAPTER_NOT_PEFT`, one for each thing that PEFT 0.21 would load as another function or not at all."""
    return [
        *_whole_problems(adapter),
        *(found for factor in adapter.factors for found in _factor_problems(factor)),
        *_flag_problems(adapter),
        *_stack_problems(adapter, model_type),
    ]


def _whole_problems(adapter: AdapterManifest) -> Iterator[Problem]:
    if adapter.payload != "portable" or adapter.initializer != "none":
        hint = "Convert it to portable; PEFT would take another start out of the base when it loads."
        observed = f"{adapter.payload} factors, initializer {adapter.initializer}"
        yield _no(("payload",), "factors of the original base", observed, hint)
    for key in sorted(adapter.training.keys() - TRAINING):
        yield _no(("training", key), "an adapter PEFT loads without its training's facts", key, _WHOLE_HINT)


def _factor_problems(factor: FactorManifest) -> Iterator[Problem]:
    if factor.site[1:] != (-1, -1, ""):
        hint = "Serve routed experts with the program they were trained for."
        yield _no(("factors", factor.module), "one factor a module", "one of several", hint)
    for role in sorted(factor.extra.keys() - EXTRAS):
        yield _no(("factors", factor.module, "extra", role), f"one of {', '.join(sorted(EXTRAS))}", role, _WHOLE_HINT)


def _flag_problems(adapter: AdapterManifest) -> Iterator[Problem]:
    """PEFT has one flag for all modules, and triplets have one alpha and one initial rank."""
    for role, flag in FLAGS.items():
        count = sum(role in factor.extra for factor in adapter.factors)
        if 0 < count < len(adapter.factors):
            observed = f"{role} on {count} of {len(adapter.factors)}"
            yield _no(("factors", "extra", role), f"{role} on every module or on none ({flag})", observed, _WHOLE_HINT)
    triplets = [factor for factor in adapter.factors if "E" in factor.extra]
    if len({factor.scale.value for factor in triplets}) > 1:
        yield _no(("factors", "scale"), "one scale for all triplets", "several", "Convert the adapter to compact.")
    if any(len(factor.extra) > 1 for factor in triplets):
        yield _no(("factors", "extra"), "E alone", "E and others", _WHOLE_HINT)


def _stack_problems(adapter: AdapterManifest, model_type: str) -> Iterator[Problem]:
    """PEFT's patterns name modules, not parameters, and it nests the wrappers of a module in the module's own order."""
    modules = stacked_modules(adapter)
    scales = {(factor.rank, factor.scale.rule, factor.scale.alpha) for factor in adapter.factors}
    for module, parameters in modules.items():
        path = ("factors", module)
        if len(scales) > 1:
            yield _no(path, "one rank and alpha beside stacked parameters", f"{len(scales)}", _WHOLE_HINT)
        if len(parameters) > 1 and None in {parameter_position(name, model_type) for name in parameters}:
            observed = f"several of an unknown order: {', '.join(parameters)}"
            yield _no(path, "one stacked parameter of a module", observed, _WHOLE_HINT)


def _no(path: tuple[str, ...], expected: str, observed: str, hint: str) -> Problem:
    return problem("ADAPTER_NOT_PEFT", path, expected, observed, hint)
