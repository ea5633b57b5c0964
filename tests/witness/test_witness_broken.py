"""Operators broken on purpose: each keeps every shape, and each is caught by the comparison with the reference."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import fields, replace
from random import Random
from typing import Any, Final, Literal

import numpy as np
import pytest
import torch
from blake3 import blake3

from compose.fields import Dropped, Field, Trimmed
from compose.masks import KeepMask, MaskRole
from compose.module import Figures, LoadedFactor, ModuleInput, ModuleOutput
from compose.operators.cat import cat
from compose.operators.dare import dare_linear_delta
from compose.operators.delta_svd import delta_svd
from compose.operators.factor_linear import factor_linear
from compose.operators.refactor import Prepared, refactor
from compose.operators.ties import ties_choices, ties_delta, ties_factor
from compose.shapes import Matrix
from oracles.matrix import Matrix as Rows
from schemas.canonical import canonical_bytes
from schemas.methods import Choices, DareChoices, Method, Space, TiesChoices, ties_preset
from tests.witness.cases import EXACT, Numbers, adapter, as_members, draw_matrix
from tests.witness.harness import Operator, differences, operator_of
from tests.witness.reference import CONTEXT, Case, Plain


def with_ties(module: ModuleInput, **words: str) -> ModuleInput:
    """The module under other TIES choices than the ones asked for."""
    ties = TiesChoices.model_validate({**ties_choices(module).model_dump(), **words})
    return replace(module, choices=module.choices.model_copy(update={"ties": ties}))


def with_factors(module: ModuleInput, factors: Sequence[LoadedFactor]) -> ModuleInput:
    """The module with other members."""
    return replace(module, factors=tuple(factors))


def elect_by_count(module: ModuleInput) -> ModuleOutput:
    """Signs by majority where the sum decides."""
    return ties_delta(with_ties(module, elect="frequency"))


def elect_by_count_on_factors(module: ModuleInput) -> ModuleOutput:
    """The same on A and B."""
    return ties_factor(with_ties(module, elect="frequency"))


def elect_on_weighted_values(module: ModuleInput) -> ModuleOutput:
    """Signs of the weighted values where the plain ones decide."""
    return ties_delta(with_ties(module, values="weighted"))


def elect_plus_for_nothing(module: ModuleInput) -> ModuleOutput:
    """A zero sum elects plus where it elects nobody."""
    return ties_delta(with_ties(module, zero_sum="plus"))


def reduce_without_dividing(module: ModuleInput) -> ModuleOutput:
    """The sum of aligned values where their mean is asked."""
    return ties_delta(with_ties(module, reduce="sum"))


def one_scale_for_all_blocks(module: ModuleInput) -> ModuleOutput:
    """The first member's scale over the whole concatenation."""
    scale = module.factors[0].scale
    return cat(with_factors(module, [replace(f, scale=scale) for f in module.factors]))


def one_scale_before_the_svd(module: ModuleInput) -> ModuleOutput:
    """The same in front of a decomposition."""
    scale = module.factors[0].scale
    return delta_svd(with_factors(module, [replace(f, scale=scale) for f in module.factors]))


def coefficient_on_both_sides(module: ModuleInput) -> ModuleOutput:
    """``c`` in A and again in B."""
    output = cat(module)
    columns = torch.cat([torch.full((f.rank,), f.coefficient, dtype=torch.float64) for f in module.factors])
    return replace(output, b=output.b * columns)


def unsigned_split(module: ModuleInput) -> ModuleOutput:
    """``sqrt|c|`` on both sides: a negative coefficient adds."""
    return factor_linear(with_factors(module, [replace(f, weight=abs(f.weight)) for f in module.factors]))


def factors_called_a_delta_sum(module: ModuleInput) -> ModuleOutput:
    """Factors summed apart where the deltas are to be summed."""
    return replace(factor_linear(module), figures=delta_svd(module).figures)


def largest_values_discarded(module: ModuleInput) -> ModuleOutput:
    """The trailing singular triplets kept in place of the leading ones."""
    whole = delta_svd(replace(module, rank=min(module.shape)))
    kept = slice(whole.a.shape[0] - module.rank, None)
    return replace(delta_svd(module), a=whole.a[kept], b=whole.b[:, kept])


class LastOfEquals(Field):
    """A trim that resolves equal magnitudes by the higher flat index: the tile is trimmed back to front."""

    def __init__(self, source: Field, choices: TiesChoices) -> None:
        self.tiling = source.tiling
        self.trimmed = Trimmed(BackToFront(source), choices)

    def tile(self, number: int) -> Matrix:
        """The trimmed values, turned again."""
        return self.trimmed.tile(number).flip(0, 1)


class BackToFront(Field):
    """Values in reverse flat order; for fields of one tile."""

    def __init__(self, source: Field) -> None:
        self.source, self.tiling = source, source.tiling

    def tile(self, number: int) -> Matrix:
        """The tile turned around."""
        return self.source.tile(number).flip(0, 1)


def unstable_ties(module: ModuleInput) -> ModuleOutput:
    """Equal magnitudes by the higher index."""

    def prepare(given: ModuleInput, sources: Sequence[Field], _role: MaskRole) -> Prepared:
        return Prepared([LastOfEquals(each, ties_choices(given)) for each in sources])

    return refactor(module, prepare, ties_choices(module))


def k_to_the_nearest(module: ModuleInput) -> ModuleOutput:
    """k rounded where it is rounded down."""
    return ties_delta(with_ties(module, k_rule="round"))


def forgotten_rescale(module: ModuleInput) -> ModuleOutput:
    """Kept values not divided by q; the figures as they should be."""
    dare = module.choices.dare
    assert dare is not None
    sound = dare_linear_delta(module)
    return replace(sound, b=sound.b * dare.density)


Stream = Callable[[ModuleInput, LoadedFactor, int, int], list[bool]]
"""(module, member, rows, columns) -> one decision a coordinate, row-major."""


def numbers(module: ModuleInput, adapter: str, count: int, order: Literal["little", "big"] = "little") -> list[bool]:
    """The stream of a member, its numbers read in a byte order."""
    dare = module.choices.dare
    assert dare is not None
    key = canonical_bytes([dare.seed, adapter, module.module, "delta"])
    stream = blake3(key, derive_key_context=CONTEXT).digest(length=4 * count)
    words = [int.from_bytes(stream[4 * i : 4 * i + 4], order) for i in range(count)]
    return [word < int(dare.density * 2**32) for word in words]


def big_endian(module: ModuleInput, factor: LoadedFactor, rows: int, columns: int) -> list[bool]:
    """The other byte order."""
    return numbers(module, factor.adapter, rows * columns, "big")


def column_major(module: ModuleInput, factor: LoadedFactor, rows: int, columns: int) -> list[bool]:
    """Coordinates counted down the columns."""
    bits = numbers(module, factor.adapter, rows * columns)
    return [bits[j * rows + i] for i in range(rows) for j in range(columns)]


def one_mask_for_all(module: ModuleInput, _factor: LoadedFactor, rows: int, columns: int) -> list[bool]:
    """Every member dropped by the first one's mask."""
    return numbers(module, module.factors[0].adapter, rows * columns)


def sound_stream(module: ModuleInput, factor: LoadedFactor, rows: int, columns: int) -> list[bool]:
    """As it should be."""
    return numbers(module, factor.adapter, rows * columns)


def dropping_by(stream: Stream) -> Operator:
    """`dare_linear` with masks of another stream; what it records of them is as it should be."""

    def prepare(module: ModuleInput, sources: Sequence[Field], _role: MaskRole) -> Prepared:
        dare = module.choices.dare
        assert dare is not None
        dropped = []
        for factor, each in zip(module.factors, sources, strict=True):
            bits = np.array(stream(module, factor, each.tiling.rows, each.tiling.columns))
            mask = KeepMask(np.packbits(bits, bitorder="little"), len(bits), int(bits.sum()))
            dropped.append(Dropped(each, mask, dare.density))
        return Prepared(dropped, dare_linear_delta(module).masks, dropped)

    return lambda module: refactor(module, prepare)


def summed(*deltas: Rows, weights: tuple[float, ...], ties: TiesChoices) -> Case:
    """TIES on given deltas, at full rank."""
    return Case("ties", "delta", as_members(*deltas, weights=weights), Choices(ties=ties, dtype=EXACT), 2)


ELECTION: Final = summed(
    ((3.0, 2.0, 2.0), (1.0, 1.0, 1.0)),
    ((-1.0, -2.0, -3.0), (1.0, 1.0, 2.0)),
    ((-1.0, 0.0, 0.0), (1.0, -4.0, 1.0)),
    weights=(2.0, 1.0, 1.0),
    ties=ties_preset("paper", 1.0),
)
"""Its first row: the sum says plus and the count minus; a zero sum; the weights turn a minus into a plus."""

EQUALS: Final = summed(
    ((2.0, 1.0, -1.0), (1.0, -1.0, 1.0)),
    ((0.5, 3.0, 0.25), (-0.5, 0.5, 0.5)),
    weights=(1.0, 1.0),
    ties=ties_preset("paper", 0.6),
)
"""k is 3.6: rounded down, two of five equal magnitudes stay in the first member."""


def sums(method: Method, space: Space = "delta", keep: int = 3) -> Case:
    """Three members of one rank with scales 1, 4 and 1/4 and one negative weight."""
    source, entries = Random(5), Numbers("normal")
    members = tuple(
        Plain(adapter(str(i)), weight, scale, draw_matrix(source, entries, 4, 2), draw_matrix(source, entries, 2, 5))
        for i, (weight, scale) in enumerate(((1.0, 1.0), (-0.5, 4.0), (2.0, 0.25)))
    )
    dare = DareChoices(density=0.5, seed="11")
    return Case(method, space, members, Choices(dare=dare, ties=ties_preset("paper", 0.5), dtype=EXACT), keep)


BROKEN: Final[dict[str, tuple[Operator, Case, str]]] = {
    "sign election by count": (elect_by_count, ELECTION, "delta"),
    "sign election by count on factors": (
        elect_by_count_on_factors,
        replace(ELECTION, space="factor", members=as_members(*(m.B for m in ELECTION.members))),
        "lora_B",
    ),
    "election on weighted values": (elect_on_weighted_values, ELECTION, "delta"),
    "zero sum elects plus": (elect_plus_for_nothing, ELECTION, "delta"),
    "sum in place of the mean": (reduce_without_dividing, ELECTION, "delta"),
    "unstable ties": (unstable_ties, EQUALS, "delta"),
    "k to the nearest": (k_to_the_nearest, EQUALS, "retained"),
    "one scale for all blocks": (one_scale_for_all_blocks, sums("cat"), "lora_A"),
    "one scale before the SVD": (one_scale_before_the_svd, sums("delta_svd", keep=4), "delta"),
    "coefficient on both sides": (coefficient_on_both_sides, sums("cat"), "lora_B"),
    "unsigned split": (unsigned_split, sums("factor_linear", "factor"), "lora_A"),
    "factors called a delta sum": (factors_called_a_delta_sum, sums("delta_svd", keep=2), "error of the best rank"),
    "largest values discarded": (largest_values_discarded, sums("delta_svd", keep=2), "error of the best rank"),
    "forgotten rescale": (forgotten_rescale, sums("dare_linear", keep=4), "delta"),
    "big-endian mask": (dropping_by(big_endian), sums("dare_linear", keep=4), "delta"),
    "column-major mask": (dropping_by(column_major), sums("dare_linear", keep=4), "delta"),
    "one mask for all": (dropping_by(one_mask_for_all), sums("dare_linear", keep=4), "delta"),
}


@pytest.mark.parametrize("name", list(BROKEN))
def test_a_broken_operator_is_caught_where_the_sound_one_passes(name: str) -> None:
    operator, case, figure = BROKEN[name]
    assert differences(case) == ()
    assert figure in differences(case, operator)


def test_the_broken_masks_differ_from_a_sound_one_in_their_stream_alone() -> None:
    assert differences(sums("dare_linear", keep=4), dropping_by(sound_stream)) == ()


MOVE: Final = 1e-8
"""Against figures of order 1 to 1000, squares among them."""


def moved(figures: Figures, name: str) -> Figures:
    """The figures with one of them slightly off, or one count off by one."""
    value: Any = getattr(figures, name)
    changed: Any
    if name == "products":
        changed = value.copy()
        changed[0, 0] += MOVE
    elif name == "drops":
        changed = (replace(value[0], drawn=value[0].drawn + MOVE), *value[1:])
    elif name == "singular_values":
        changed = (value[0] + MOVE, *value[1:])
    elif name == "conflict":
        changed = (value[0] + 1, value[1])
    else:
        changed = value + (1 if name == "numerical_rank" else MOVE)
    update: dict[str, Any] = {name: changed}
    return replace(figures, **update)


@pytest.mark.parametrize("name", sorted({field.name for field in fields(Figures)} - {"certificate"}))
def test_no_figure_can_move_unseen(name: str) -> None:
    case = sums("dare_ties", "factor")
    if name == "discarded_energy":
        case = sums("delta_svd", keep=2)

    def operator(module: ModuleInput) -> ModuleOutput:
        output = operator_of(case)(module)
        return replace(output, figures=moved(output.figures, name))

    assert differences(case) == ()
    assert differences(case, operator) == (name,)


def test_a_wrong_count_or_mask_digest_is_named() -> None:
    case = sums("dare_ties", "factor")
    other = case.choices.model_copy(update={"dare": DareChoices(density=0.5, seed="12")})
    seed = operator_of(case)

    def recorded(module: ModuleInput) -> ModuleOutput:
        masks = seed(replace(module, choices=other)).masks
        return replace(seed(module), masks=masks)

    def counted(module: ModuleInput) -> ModuleOutput:
        output = seed(module)
        return replace(output, retained=(output.retained[0] + 1, *output.retained[1:]))

    assert differences(case, recorded) == ("masks",)
    assert differences(case, counted) == ("retained",)
