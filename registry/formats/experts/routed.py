"""HydraLoRA (afb693bc) and LoRAMoE (11772888): experts on every module, weighed by a dense router ``lora_route``.

``y = W x + alpha / r * sum_i softmax(lora_route x)_i lora_B_i lora_A_i x``. HydraLoRA has one ``lora_A`` for all,
LoRAMoE one for each expert. The router's tensors are kept as bytes; they belong to a router, not to a factor.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from registry.formats.directory import Directory
from registry.formats.draft import Draft, Piece
from registry.formats.experts.config import OWN, own_document, read_own, targets
from registry.formats.pairs import pair_problems
from registry.formats.peft.fields import CONFIG, provenance
from registry.formats.peft.keys import ROOT, WEIGHTS
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import TensorEntry
from registry.formats.scan import file_header
from schemas.adapter import make_scale
from schemas.errors import Problem

_KEY: Final = re.compile(r"(?P<module>.+)\.lora_(?:(?P<side>[AB])(?P<expert>\d{0,5})|(?P<route>route))\.weight")
_NAMES: Final = {"a": "lora_A", "b": "lora_B"}


@dataclass
class _Module:
    """The tensors of one module; experts by number, -1 for the A that all share."""

    a: dict[int, TensorEntry] = field(default_factory=dict)
    b: dict[int, TensorEntry] = field(default_factory=dict)
    route: TensorEntry | None = None


class RoutedExperts:
    """The row of HydraLoRA and LoRAMoE in the table of producers."""

    name = "HydraLoRA or LoRAMoE"

    def recognises(self, directory: Directory) -> bool:
        """A number of LoRA experts in the config."""
        return WEIGHTS in directory.names and own_document(directory).get("lora_nums") is not None

    def draft(self, directory: Directory, scratch: Path) -> Draft:
        """One factor an expert; a shared A is one tensor.

        Raises:
            RefusedError: `KEY_UNKNOWN`, `KEY_REPEATED`, `EXPERTS_MISMATCH`, `ROUTER_MISMATCH`, and what `read_settings`
                and `pair_problems` refuse.
        """
        del scratch
        document, config = directory.read_object(CONFIG)
        settings, experts = read_own(document, "lora_nums")
        modules = _modules(file_header(directory, WEIGHTS).tensors)
        refuse_all(found for module in modules.values() for found in _problems(module, experts))
        shared = {-1 in module.a for module in modules.values()}
        refuse_all(_mixed() for _ in range(len(shared) - 1))
        family = "hydralora" if shared == {True} else "loramoe"
        scale = make_scale(settings.alpha, "alpha_over_r", settings.rank)
        return Draft(
            producer=family,
            pieces=tuple(
                Piece(
                    name, {"a": module.a.get(-1) or module.a[index], "b": b}, scale, family, settings.rank, expert=index
                )
                for name, module in modules.items()
                for index, b in module.b.items()
            ),
            files=(config,),
            weights=(WEIGHTS,),
            family=family,
            notes=dict(provenance(document)) | {key: _said(document[key]) for key in sorted(OWN & document.keys())},
            targets=targets(settings),
            router_tensors=tuple(module.route.name for module in modules.values() if module.route is not None),
        )


def _modules(entries: tuple[TensorEntry, ...]) -> dict[str, _Module]:
    found: dict[str, _Module] = {}
    problems = []
    for entry in sorted(entries, key=lambda entry: entry.name):
        match = _KEY.fullmatch(entry.name.removeprefix(ROOT)) if entry.name.startswith(ROOT) else None
        if match is None:
            hint = "Save the adapter again; a tensor that is not understood cannot be dropped."
            expected = f"{ROOT}<module>.lora_A, lora_B<i> or lora_route"
            problems.append(problem("KEY_UNKNOWN", entry.place, expected, shown(entry.name), hint))
            continue
        module = found.setdefault(match["module"], _Module())
        if match["route"]:
            module.route = entry
            continue
        side, number = module.a if match["side"] == "A" else module.b, int(match["expert"] or -1)
        if number in side:
            hint = "Keep one of the two; they name the same factor."
            problems.append(problem("KEY_REPEATED", entry.place, "one tensor for a factor", "two", hint))
        side[number] = entry
    refuse_all(problems)
    return found


def _problems(module: _Module, experts: int) -> list[Problem]:
    """Numbers from 0 without a gap on both sides, or one A; a router with a row for each expert."""
    places = [*module.a.values(), *module.b.values(), *([module.route] if module.route else [])]
    roles: Mapping[str, TensorEntry] = {
        role: min(side.values(), key=lambda entry: entry.name)
        for role, side in (("a", module.a), ("b", module.b))
        if side
    }
    if len(roles) < 2:
        return pair_problems(roles or {"a": places[0]}, _NAMES, set())
    wanted = set(range(experts))
    if module.b.keys() != wanted or (module.a.keys() != {-1} and module.a.keys() != wanted):
        hint = "Restore config and tensors of one save; lora_nums counts the experts."
        observed = f"lora_A {sorted(module.a)}, lora_B {sorted(module.b)}"
        return [problem("EXPERTS_MISMATCH", roles["b"].place, f"experts 0 to {experts - 1}", shown(observed), hint)]
    route = module.route
    if route is None or route.shape != (experts, *roles["a"].shape[1:]):
        hint = "The file is incomplete: the router weighs the experts, and without it there is no function."
        expected = f"lora_route {shown([experts, *roles['a'].shape[1:]])}"
        observed = "none" if route is None else shown(list(route.shape))
        return [problem("ROUTER_MISMATCH", roles["b"].place, expected, observed, hint)]
    return []


def _mixed() -> Problem:
    hint = "Save each adapter into a directory of its own."
    observed = "both one for all and one for each"
    return problem("EXPERTS_MISMATCH", (WEIGHTS,), "one lora_A for all experts, or one for each", observed, hint)


def _said(value: object) -> str | int | float | bool | None:
    return value if isinstance(value, str | int | float | bool) or value is None else str(value)


ROUTED: Final = RoutedExperts()
