"""`verify --recompute`: bytes where they must agree, deltas where singular vectors may round."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import pytest

from registry.service import add, admit, specs, verify
from registry.service.composer import Composed, ComposeOrder, Composer, Progress
from registry.service.context import Context
from tests.support import tiny

SPEC = "name: merged\nbase: tiny\n{method}\nmembers: [{{ref: one, weight: 1.0}}, {{ref: two, weight: -0.5}}]\n"
CAT = SPEC.format(method="method: cat\nspace: delta").encode()
SVD = SPEC.format(method="method: svd\nrank: 3").encode()


@dataclass(frozen=True)
class Skewed:
    """A composer that weighs every member a little more than it is told."""

    composer: Composer
    factor: float

    def compose(self, order: ComposeOrder, folder: Path, progress: Progress | None = None) -> Composed:
        members = tuple(
            member.model_copy(update={"weight": member.weight * self.factor}) for member in order.spec.members
        )
        skewed = replace(order, spec=order.spec.model_copy(update={"members": members}))
        return self.composer.compose(skewed, folder, progress)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.composer, name)


@pytest.fixture
def composed(context: Context, tiny_base: Path, tmp_path: Path) -> Context:
    """Two adapters, one cat and one truncated sum."""
    add.add_base(context, tiny_base, "tiny")
    for seed, name in enumerate(("one", "two"), 1):
        add.add_adapter(context, tiny.write_adapter(tmp_path / name, seed), "tiny", name)
    for text in (CAT, SVD):
        assert admit.admit(context, specs.parse_spec(text)).created
    return context


def test_a_second_run_agrees(composed: Context) -> None:
    assert verify.verify(composed, recompute=True).clean


def test_another_result_is_named_with_its_distance(composed: Context) -> None:
    skewed = replace(composed, composer=cast(Composer, Skewed(composed.composer, 1.01)))
    faults = verify.verify(skewed, recompute=True).faults
    assert [fault.code for fault in faults] == ["RECOMPUTE_DIFFERS", "RECOMPUTE_DIFFERS"]
    assert all("deltas 0.01 apart" in fault.observed for fault in faults)


def test_rounding_is_forgiven_where_singular_vectors_round(composed: Context) -> None:
    skewed = replace(composed, composer=cast(Composer, Skewed(composed.composer, 1 + 1e-7)))
    faults = verify.verify(skewed, recompute=True).faults
    assert [fault.code for fault in faults] == ["RECOMPUTE_DIFFERS"], "only the cat must agree in its bytes"
