"""PEFT 0.21.2 run live beside our engine: the same deltas wherever PEFT computes what it says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final, Literal

import pytest
import torch
from blake3 import blake3
from peft import PeftModel
from torch import Tensor
from torch.overrides import TorchFunctionMode
from transformers import BertModel

from schemas.canonical import canonical_bytes
from tests.compose.building import digest_of
from tests.parity.models import MODELS, adapted
from tests.parity.shim import COMBINATIONS, Combination, Target, add_weighted_adapter, targets

pytestmark = pytest.mark.filterwarnings(
    # PEFT 0.21 asks transformers 5.24 under the older name.
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
DENSITY: Final = 0.5
SEED: Final = "17"
EQUAL: Final = ({"r": 4, "lora_alpha": 8}, {"r": 4, "lora_alpha": 3}, {"r": 4, "lora_alpha": 12})
"""One rank, as PEFT's factor methods need it; scales 2, 0.75 and 3."""
UNEQUAL: Final = ({"r": 2, "lora_alpha": 8}, {"r": 5, "lora_alpha": 3}, {"r": 4, "lora_alpha": 4})
WEIGHTS: Final = (0.5, -1.25, 0.75)
DELTA: Final = tuple(name for name in COMBINATIONS if name == "cat" or name.endswith("svd"))


class OurMasks(TorchFunctionMode):
    """Hands PEFT's DARE the masks of the documented stream, computed here from its definition alone.

    PEFT draws a mask a member in delta space, and one for every A before one for every B in factor space.
    """

    def __init__(self, model: Any, adapters: Sequence[str], space: Literal["delta", "factor"]) -> None:
        super().__init__()
        self._masks = self._in_order(list(targets(model)), adapters, space)

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Mapping[str, Any] | None = None
    ) -> Any:
        """Replace a draw; everything else passes."""
        if func is not torch.bernoulli:
            return func(*args, **(kwargs or {}))
        return next(self._masks).reshape(args[0].shape).to(args[0].dtype)

    @staticmethod
    def _in_order(found: Sequence[Target], adapters: Sequence[str], space: str) -> Iterator[Tensor]:
        for target in found:
            held = [adapter for adapter in adapters if target.holds(adapter)]
            for role in ("delta",) if space == "delta" else ("a", "b"):
                for adapter in held:
                    a, b = target.pair(adapter)
                    shape = {"delta": (b.shape[0], a.shape[1]), "a": tuple(a.shape), "b": tuple(b.shape)}[role]
                    mask = stream_mask(adapter, target.name, role, shape)
                    yield mask.T if role == "delta" and target.transposed else mask


def stream_mask(adapter: str, module: str, role: str, shape: tuple[int, ...]) -> Tensor:
    """Element i keeps iff the u32 number i of the derive-key stream is below ``floor(q 2^32)``."""
    rows, columns = shape
    key = canonical_bytes([SEED, digest_of(adapter), module, role])
    raw = blake3(key, derive_key_context="adapter-registry v1 mask").digest(length=4 * rows * columns)
    numbers = [int.from_bytes(raw[at : at + 4], "little") for at in range(0, len(raw), 4)]
    return torch.tensor([number < DENSITY * 2**32 for number in numbers]).reshape(rows, columns)


def merge_both(
    model: Any,
    combination: Combination,
    folder: Path,
    *,
    weights: Sequence[float] = WEIGHTS,
    elect: Literal["total", "frequency"] = "total",
) -> None:
    """Merge all adapters as `peft` with PEFT and as `ours` with our engine."""
    adapters = [str(number) for number in range(len(weights))]
    density = None if combination in ("svd", "cat", "linear") else DENSITY
    space: Literal["delta", "factor"] = "delta" if combination in DELTA else "factor"
    with OurMasks(model, adapters, space):
        model.add_weighted_adapter(
            adapters, list(weights), "peft", combination, svd_full_matrices=False, density=density,
            majority_sign_method=elect,
        )  # fmt: skip
    add_weighted_adapter(
        model, adapters, weights, "ours", combination, density=density, majority_sign_method=elect, folder=folder,
        seed=SEED,
    )  # fmt: skip


def distance(target: Target) -> float:
    """Relative distance of our delta from PEFT's."""
    expected = target.delta("peft")
    return float(torch.linalg.norm(target.delta("ours") - expected) / torch.linalg.norm(expected))


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("combination", COMBINATIONS)
def test_every_combination_gives_the_delta_of_peft_on_every_kind_of_layer(
    tmp_path: Path, kind: str, combination: Combination
) -> None:
    model = adapted(kind, *EQUAL)
    merge_both(model, combination, tmp_path)
    # PEFT rounds the weights, and their roots, to single precision.
    assert [target.name for target in targets(model) if distance(target) > 1e-6] == []


@pytest.mark.parametrize("kind", MODELS)
@pytest.mark.parametrize("combination", DELTA)
def test_ranks_and_scales_may_differ_in_delta_space(tmp_path: Path, kind: str, combination: Combination) -> None:
    model = adapted(kind, *UNEQUAL)
    merge_both(model, combination, tmp_path)
    assert [target.name for target in targets(model) if distance(target) > 1e-6] == []


@pytest.mark.parametrize("combination", COMBINATIONS)
def test_patterns_give_every_module_its_own_rank_and_scale(tmp_path: Path, combination: Combination) -> None:
    one = {"r": 4, "lora_alpha": 8, "rank_pattern": {"lin0": 6}, "alpha_pattern": {"lin1": 1}}
    other = {"r": 4, "lora_alpha": 8, "rank_pattern": {"lin0": 6}, "alpha_pattern": {"lin0": 24}}
    model = adapted("linear", one, other)
    merge_both(model, combination, tmp_path, weights=(0.75, -0.5))
    assert [target.name for target in targets(model) if distance(target) > 1e-6] == []


@pytest.mark.parametrize("combination", ["ties", "ties_svd", "dare_ties", "dare_ties_svd"])
def test_signs_may_be_elected_by_count(tmp_path: Path, combination: Combination) -> None:
    model = adapted("linear", *EQUAL)
    merge_both(model, combination, tmp_path, elect="frequency")
    assert [target.name for target in targets(model) if distance(target) > 1e-6] == []


@pytest.mark.parametrize("combination", ["ties", "ties_svd"])
def test_opposite_members_of_equal_size_elect_plus(tmp_path: Path, combination: Combination) -> None:
    model = adapted("linear", {"r": 4}, {"r": 4})
    for target in targets(model):
        a, b = target.pair("0")
        # Both factors change sign in factor space; one of them is enough to do so in delta space.
        target.put("1", -a if combination == "ties" else a, -b)
    merge_both(model, combination, tmp_path, weights=(0.5, 0.75))
    assert [target.name for target in targets(model) if distance(target) > 1e-6] == []
    assert all(bool(target.delta("peft").any()) for target in targets(model))


def test_members_on_different_modules_give_the_union(tmp_path: Path) -> None:
    model = adapted("linear", {"r": 3, "target_modules": ["lin0"]}, {"r": 4, "target_modules": ["lin0", "lin1"]})
    merge_both(model, "svd", tmp_path, weights=(0.5, -1.0))
    assert [target.name for target in targets(model)] == ["lin0", "lin1"]
    assert [target.name for target in targets(model) if distance(target) > 1e-6] == []


@pytest.fixture(scope="module")
def trained(minilm: Path, adapters: Path) -> Any:
    """MiniLM with `0`: query and value of all layers, `1`: of three layers, `2`: patterns of rank and alpha."""
    model = PeftModel.from_pretrained(BertModel.from_pretrained(minilm), adapters / "qa-lora", adapter_name="0")
    model.load_adapter(adapters / "docs-lora", adapter_name="1")
    model.load_adapter(adapters / "style-pattern", adapter_name="2")
    return model


@pytest.mark.parametrize(
    ("combination", "members", "modules", "tolerance"),
    [
        ("cat", 3, 24, 1e-5),
        ("svd", 2, 12, 1e-5),
        # PEFT forms deltas in single precision; a trim may then keep the other of two nearly equal entries.
        ("ties_svd", 2, 12, 1e-3),
    ],
)
def test_trained_adapters_give_the_delta_of_peft(
    trained: Any, tmp_path: Path, combination: Combination, members: int, modules: int, tolerance: float
) -> None:
    merge_both(trained, combination, tmp_path, weights=WEIGHTS[:members])
    composed = [target for target in targets(trained) if target.holds("ours")]
    distances = [distance(target) for target in composed]
    for name in ("peft", "ours"):
        trained.delete_adapter(name)
    assert len(distances) == modules
    assert max(distances) < tolerance
