"""What a request must be before any byte of a tensor is read. All problems are collected, then refused together."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from math import isfinite

from compose.errors import ComposeRefusedError, problem
from compose.request import ComposeRequest, FactorSource, Member, TensorSource
from compose.tensors import FLOATS
from schemas.errors import Path, Problem
from schemas.methods import SPACES, Choices, Method, Space


def check(request: ComposeRequest) -> None:
    """Refuse a request the engine cannot compute.

    Raises:
        ComposeRefusedError: one problem for everything that is wrong.
    """
    modules: defaultdict[str, _Seen] = defaultdict(_Seen)
    problems = [*_method(request), *_members(request.members, modules), *_shapes(request, modules)]
    if problems:
        raise ComposeRefusedError(*problems)


def needs_rank(method: Method, space: Space) -> bool:
    """Whether the output rank is the caller's choice: where a delta is factored anew."""
    return space == "delta" and method not in ("cat", "dense_sum")


def _method(request: ComposeRequest) -> Iterator[Problem]:
    spaces = SPACES.get(request.method)
    if spaces is None:
        hint = "Choose a method of the list."
        yield problem("METHOD_UNKNOWN", "method", expected=", ".join(SPACES), observed=str(request.method), hint=hint)
        return
    if request.space not in spaces:
        hint = "Name the coordinate space: the result depends on it."
        yield problem("SPACE_UNDEFINED", "space", expected=" or ".join(spaces), observed=str(request.space), hint=hint)
    if request.method == "dense_sum":
        hint = "Use a dense release, or cat for the same sum as an adapter."
        yield problem("METHOD_DENSE_ONLY", "method", expected="a low-rank output", observed="dense_sum", hint=hint)
    for name in _missing_choices(request.method, request.space, request.choices):
        hint = f"Give {name} in the spec."
        yield problem(
            "CHOICE_MISSING", "choices", name, expected=f"a value for {request.method}", observed="null", hint=hint
        )


def _missing_choices(method: Method, space: Space, choices: Choices) -> Iterator[str]:
    needed = {
        "rank": needs_rank(method, space),
        "ties": method in ("ties", "dare_ties"),
        "dare": method in ("dare_linear", "dare_ties"),
        "prune": method == "magnitude_prune",
    }
    for name, wanted in needed.items():
        if wanted and getattr(choices, name) is None:
            yield name


@dataclass(frozen=True)
class _Seen:
    """What the members say of one module."""

    shapes: set[tuple[int, ...]] = field(default_factory=set)
    experts: set[int | None] = field(default_factory=set)
    ranks: set[int] = field(default_factory=set)

    def take(self, factor: FactorSource) -> None:
        self.shapes.add((factor.b.shape[0], factor.a.shape[1], *factor.kernel))
        self.experts.add(factor.experts)
        self.ranks.add(factor.rank)


def _members(members: tuple[Member, ...], modules: defaultdict[str, _Seen]) -> Iterator[Problem]:
    if not members:
        yield problem("MEMBERS_EMPTY", "members", expected="at least one member", observed="none", hint="Add a member.")
    owners = Counter(replacement.name for member in members for replacement in member.replacements)
    for name in sorted(name for name, count in owners.items() if count > 1):
        hint = "Leave the tensor in one member only; whole tensors are carried, never summed."
        yield problem("REPLACEMENT_TWICE", name, expected="one owner", observed=f"{owners[name]} members", hint=hint)
    for index, member in enumerate(members):
        factors = tuple(member.factors)
        yield from _member(index, member.weight, factors)
        for factor in factors:
            if len(factor.a.shape) == len(factor.b.shape) == 2:
                modules[factor.module].take(factor)


def _member(index: int, weight: float, factors: tuple[FactorSource, ...]) -> Iterator[Problem]:
    at = ("members", index)
    if not isfinite(weight):
        hint = "Give a finite coefficient."
        yield problem("WEIGHT_NOT_FINITE", *at, "weight", expected="a finite number", observed=str(weight), hint=hint)
    if not factors:
        yield problem(
            "FACTORS_EMPTY", *at, expected="at least one factor", observed="none", hint="Leave the member out."
        )
    modules = Counter(factor.module for factor in factors)
    for module in sorted(module for module, count in modules.items() if count > 1):
        hint = "One adapter has one pair for a module."
        yield problem("MODULE_TWICE", *at, module, expected="one pair", observed=f"{modules[module]} pairs", hint=hint)
    for factor in factors:
        yield from _factor(at, factor)


def _factor(at: Path, factor: FactorSource) -> Iterator[Problem]:
    where = (*at, factor.module)
    if not isfinite(factor.scale):
        hint = "Correct alpha and the scale rule."
        yield problem("SCALE_NOT_FINITE", *where, expected="a finite scale", observed=str(factor.scale), hint=hint)
    width = factor.rank * (1 if factor.experts is None else factor.experts)
    yield from _matrix((*where, "lora_A"), factor.a, width, axis=0)
    yield from _matrix((*where, "lora_B"), factor.b, width, axis=1)


def _matrix(where: Path, source: TensorSource, rank: int, axis: int) -> Iterator[Problem]:
    shape, side = source.shape, ("rows", "columns")[axis]
    if len(shape) != 2 or shape[axis] != rank or not all(shape):
        hint = "Check the orientation: A is [rank, d_in], B is [d_out, rank]."
        yield problem(
            "FACTOR_SHAPE", *where, expected=f"a matrix of {rank} {side}", observed=str(list(shape)), hint=hint
        )
    if source.dtype not in FLOATS:
        hint = "Convert the adapter to a floating dtype first."
        yield problem("DTYPE_UNSUPPORTED", *where, expected=", ".join(FLOATS), observed=source.dtype, hint=hint)


def _shapes(request: ComposeRequest, modules: Mapping[str, _Seen]) -> Iterator[Problem]:
    """Members of one module agree on its shape; factor operations also on the rank; the asked rank is possible."""
    for module in sorted(modules):
        yield from _module(request, module, modules[module])


def _module(request: ComposeRequest, module: str, seen: _Seen) -> Iterator[Problem]:
    shapes, ranks = sorted(seen.shapes), sorted(seen.ranks)
    if len(seen.experts) > 1:
        hint = "Members of one composition adapt the same base; check how the factors are stacked."
        counts = ", ".join(sorted(map(str, seen.experts)))
        yield problem("MODULE_EXPERTS_DIFFER", module, expected="one number of experts", observed=counts, hint=hint)
    if len(shapes) > 1:
        hint = "Members of one composition adapt the same base; check the orientation of A and B."
        yield problem("MODULE_SHAPES_DIFFER", module, expected="one shape", observed=str(shapes), hint=hint)
    if request.space == "factor" and len(ranks) > 1:
        hint = "Use cat or a delta method, which take any ranks."
        yield problem("RANKS_DIFFER", module, expected="one rank", observed=str(ranks), hint=hint)
    rank, possible = request.choices.rank, min(shapes[0][:2])
    if rank is not None and needs_rank(request.method, request.space) and not 1 <= rank <= possible:
        hint = "A matrix has no more directions than its smaller side."
        yield problem("RANK_IMPOSSIBLE", module, "rank", expected=f"1 to {possible}", observed=str(rank), hint=hint)
