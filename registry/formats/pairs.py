"""What must be there for every factor, whoever wrote it: both sides of the pair, and the extras a flag promises."""

from __future__ import annotations

from collections.abc import Mapping, Set
from typing import Final

from registry.formats.report import problem
from registry.formats.safetensors_file import TensorEntry
from schemas.errors import Problem

PAIR: Final = frozenset({"a", "b"})


def pair_problems(roles: Mapping[str, TensorEntry], names: Mapping[str, str], extras: Set[str]) -> list[Problem]:
    """`FACTOR_UNPAIRED`, `FACTOR_EXTRA_MISSING` and `FACTOR_EXTRA_UNDECLARED`.

    Args:
        roles: the tensors of one module; never empty.
        names: what the producer calls each role.
        extras: the roles promised beside the pair.
    """
    place = next(iter(roles.values())).place
    there = ", ".join(names[role] for role in sorted(roles))
    if not roles.keys() >= PAIR:
        hint = "The file is incomplete: save the adapter again."
        return [problem("FACTOR_UNPAIRED", place, f"{names['a']} and {names['b']}", f"only {there}", hint)]
    hint = "Restore config and tensors of one save: they say different things."
    missing = [
        problem("FACTOR_EXTRA_MISSING", place, f"{names[role]} on every module", f"only {there}", hint)
        for role in sorted(extras - roles.keys())
    ]
    return missing + [
        problem("FACTOR_EXTRA_UNDECLARED", roles[role].place, f"no {names[role]}", "one in the file", hint)
        for role in sorted(roles.keys() - PAIR - extras)
    ]
