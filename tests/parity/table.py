"""Where PEFT 0.21.2 merges wrongly without a word, measured live: `python -m tests.parity.table` prints the table.

Every row merges on a small BERT with PEFT, with our engine, and from the definition; nothing is written down here.
"""

from __future__ import annotations

import sys
import tempfile
import warnings
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Final

import peft
import torch
from peft import LoraConfig, get_peft_model
from torch import Tensor
from transformers import BertConfig, BertModel

from compose import ComposeRefusedError
from registry.errors import RefusedError, UsageProblemError
from registry.formats import read_adapter, read_base
from registry.service.specs import spec_from
from schemas.base import BaseManifest
from tests.parity.shim import Combination, add_weighted_adapter, heads, targets
from tests.validators.examples import judge

BERT: Final = BertConfig(
    vocab_size=11, hidden_size=8, num_hidden_layers=2, num_attention_heads=2, intermediate_size=12,
    max_position_embeddings=6,
)  # fmt: skip
PLAIN: Final = {"r": 4, "lora_alpha": 8, "target_modules": ["query", "value"]}
NAMES: Final = ("one", "two")
RIGHT: Final = 1e-6
"""Relative distance within which a merge is right: PEFT rounds weights to single precision."""

Value = Tensor | str
"""A measured vector, or the code of a refusal."""


@dataclass(frozen=True)
class Row:
    """One case: what `quantity` is in PEFT's merge, in ours and by definition.

    `said` is what PEFT warned of while it merged, `registration` what the registry says of the first member today.
    """

    case: str
    quantity: str
    peft: Value
    ours: Value
    exact: Tensor
    said: str
    registration: str = "accepts"

    @property
    def peft_is_right(self) -> bool:
        """Whether PEFT gives the exact value."""
        return self.distance(self.peft) <= RIGHT

    @property
    def ours_is_right(self) -> bool:
        """Whether ours is the exact value or a refusal by name."""
        return isinstance(self.ours, str) or self.distance(self.ours) <= RIGHT

    def distance(self, value: Value) -> float:
        """Relative distance from the exact value; infinite for a refusal."""
        if isinstance(value, str):
            return float("inf")
        return float(torch.linalg.norm(value - self.exact) / torch.linalg.norm(self.exact))


def rows() -> tuple[Row, ...]:
    """All cases, measured now."""
    with warnings.catch_warnings():
        # PEFT asks transformers under an older name, and takes the bias of B for a matrix that was not gathered.
        warnings.simplefilter("ignore")
        return tuple(measure() for measure in MEASURES)


def rank_stabilised() -> Row:
    """The flag is kept, alpha becomes the output rank: the scale is the root of the output rank instead of 1."""
    config = PLAIN | {"use_rslora": True}
    return _sum("rank-stabilised members", (config, config), "cat")


def dora() -> Row:
    """A new magnitude vector is made from the base and never trained: one member of weight 1 is not itself."""
    model = _model(PLAIN | {"use_dora": True})
    for target in targets(model):
        target.layer.lora_magnitude_vector[NAMES[0]].weight.data *= 1.5
    exact = _effect(model, "one")
    said = _peft(model, [1.0], "linear", members=1)
    code = _decision(model, "one")
    return Row("DoRA, one member of weight 1", "change of the layers", _effect(model, "peft"), code, exact, said)


def lora_bias() -> Row:
    """The bias of B is part of the update and is left at its start."""
    model = _model(PLAIN | {"lora_bias": True}, PLAIN | {"lora_bias": True})
    exact = 0.5 * _shift(model, "one") - 0.25 * _shift(model, "two")
    said = _peft(model, [0.5, -0.25], "cat")
    code = _decision(model, "one")
    return Row("lora_bias", "shift of the layers at 0", _shift(model, "peft"), code, exact, said)


def first_on_some_layers() -> Row:
    """The merge inherits the first member's layers; the others' updates outside them vanish."""
    return _sum("first has layers_to_transform", (PLAIN | {"layers_to_transform": [0]}, PLAIN), "cat")


def first_with_exclusions() -> Row:
    """The merge inherits the first member's exclusions as well."""
    return _sum("first has exclude_modules", (PLAIN | {"exclude_modules": r".*layer\.1.*"}, PLAIN), "cat")


def trained_head() -> Row:
    """The head of the merge is a fresh copy of the base's module, not the trained one."""
    model = _model(PLAIN | {"modules_to_save": ["pooler"]}, PLAIN)
    for tensor in heads(model, "one").values():
        tensor.normal_()
    exact = _head(model, "one")
    said = _peft(model, [1.0, 1.0], "cat")
    ours = _ours(model, [1.0, 1.0], "cat", _head)
    return Row(
        "a trained head", "weights of the head", _head(model, "peft"), ours, exact, said, _registration(model, "one")
    )


def failed_merge() -> Row:
    """A merge that raises leaves its adapter behind, zero; asked again under that name, PEFT returns in silence."""
    model = _model(PLAIN, PLAIN | {"rank_pattern": {"query": 2}})
    with suppress(RuntimeError):
        _peft(model, [1.0, 1.0], "linear")
    said = _peft(model, [1.0, 1.0], "linear")
    exact = _exact(model, [1.0, 1.0])
    ours = _ours(model, [1.0, 1.0], "linear", _deltas)
    return Row("retried after a failed merge", "delta of the layers", _deltas(model, "peft"), ours, exact, said)


def missing_weight() -> Row:
    """Members and weights are zipped: a member without a weight is dropped."""
    model = _model(PLAIN, PLAIN)
    exact = _exact(model, [1.0, 1.0])
    said = _peft(model, [1.0], "cat")
    return Row("fewer weights than members", "delta of the layers", _deltas(model, "peft"), _spec_code(), exact, said)


def zero_weight() -> Row:
    """A member of weight 0 still counts in the divisor of the disjoint mean."""
    model = _model(PLAIN, PLAIN)
    for target in targets(model):
        target.put("two", *target.pair("one"))
    exact = _exact(model, [1.0])
    said = _peft(model, [1.0, 0.0], "ties_svd", density=1.0)
    ours = _ours(model, [1.0, 0.0], "ties_svd", _deltas, density=1.0)
    return Row("TIES with a member of weight 0", "delta of the layers", _deltas(model, "peft"), ours, exact, said)


def scaled_once() -> Row:
    """Releases before 0.21 applied the scale twice in `svd`."""
    return _sum("svd applies the scale once", (PLAIN, PLAIN), "svd", rank=8)


MEASURES: Final[tuple[Callable[[], Row], ...]] = (
    rank_stabilised, dora, lora_bias, first_on_some_layers, first_with_exclusions, trained_head, failed_merge,
    missing_weight, zero_weight, scaled_once,
)  # fmt: skip


def render(measured: Sequence[Row]) -> str:
    """The table as text: norms, and the relative distance of PEFT's value from the exact one."""
    lines = [("case", "norm of", "PEFT", "ours", "exact", "PEFT off by", "PEFT is", "registration", "PEFT says")]
    lines += [
        (
            row.case, row.quantity, _cell(row.peft), _cell(row.ours), _cell(row.exact),
            f"{row.distance(row.peft):.3g}", "right" if row.peft_is_right else "wrong", row.registration, row.said,
        )
        for row in measured
    ]  # fmt: skip
    widths = [max(map(len, column)) for column in zip(*lines, strict=True)]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )


def _sum(case: str, configs: Sequence[Mapping[str, Any]], combination: Combination, rank: int | None = None) -> Row:
    weights = [0.5, -0.25]
    model = _model(*configs)
    exact = _exact(model, weights)
    said = _peft(model, weights, combination, svd_rank=rank)
    ours = _ours(model, weights, combination, _deltas, svd_rank=rank)
    return Row(case, "delta of the layers", _deltas(model, "peft"), ours, exact, said, _registration(model, "one"))


def _model(*configs: Mapping[str, Any]) -> Any:
    """Members `one` and `two` whose B, and bias of B, are trained away from their start."""
    torch.manual_seed(0)
    model = get_peft_model(BertModel(BERT), LoraConfig(**configs[0]), adapter_name=NAMES[0])
    for name, config in zip(NAMES[1:], configs[1:], strict=False):
        model.add_adapter(name, LoraConfig(**config))
    for target in targets(model):
        for linear in target.layer.lora_B.values():
            for parameter in linear.parameters():
                parameter.data.normal_()
    return model.to(torch.float64)


def _peft(
    model: Any, weights: Sequence[float], combination: Combination, members: int = len(NAMES), **choices: Any
) -> str:
    """Merge with PEFT; what it warned of."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.add_weighted_adapter(list(NAMES[:members]), list(weights), "peft", combination, **choices)
    return "; ".join(dict.fromkeys(str(warning.message) for warning in caught)) or "nothing"


def _ours(
    model: Any,
    weights: Sequence[float],
    combination: Combination,
    measure: Callable[[Any, str], Tensor],
    **choices: Any,
) -> Value:
    """Merge with our engine and measure, or the code of its refusal."""
    with tempfile.TemporaryDirectory() as folder:
        try:
            add_weighted_adapter(
                model, NAMES[: len(weights)], weights, "ours", combination, folder=Path(folder), **choices
            )
        except ComposeRefusedError as refused:
            return refused.code
    return measure(model, "ours")


def _exact(model: Any, weights: Sequence[float]) -> Tensor:
    """The weighted sum of the members' deltas, in float64."""
    parts = [weight * _deltas(model, name) for name, weight in zip(NAMES, weights, strict=False)]
    return torch.stack(parts).sum(0)


def _deltas(model: Any, adapter: str) -> Tensor:
    """The deltas of all layers in one vector; zeros where the adapter has none."""
    found = list(targets(model))
    missing = torch.zeros(BERT.hidden_size**2, dtype=torch.float64)
    return torch.cat([each.delta(adapter).flatten() if each.holds(adapter) else missing for each in found])


def _effect(model: Any, adapter: str) -> Tensor:
    """What the adapter adds to the linear maps of all layers, whatever it computes them from."""
    return _added(model, adapter, torch.eye(BERT.hidden_size, dtype=torch.float64)) - _shift(model, adapter)


def _shift(model: Any, adapter: str) -> Tensor:
    """What the adapter adds to the outputs of all layers at input 0."""
    return _added(model, adapter, torch.zeros(BERT.hidden_size, BERT.hidden_size, dtype=torch.float64))


@torch.no_grad()
def _added(model: Any, adapter: str, inputs: Tensor) -> Tensor:
    model.set_adapter(adapter)
    layers = [target.layer for target in targets(model)]
    return torch.cat([(layer(inputs) - layer.base_layer(inputs)).flatten() for layer in layers])


def _head(model: Any, adapter: str) -> Tensor:
    return torch.cat([tensor.flatten() for _, tensor in sorted(heads(model, adapter).items())]).clone()


@cache
def _base() -> BaseManifest:
    with tempfile.TemporaryDirectory() as folder:
        BertModel(BERT).save_pretrained(folder)
        return read_base(Path(folder)).manifest


def _registration(model: Any, adapter: str) -> str:
    """What the registry says of the member as PEFT saves it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, selected_adapters=[adapter])
        try:
            read_adapter(Path(folder) / adapter, _base())
        except RefusedError as refused:
            return refused.code
    return "accepts"


def _decision(model: Any, adapter: str) -> str:
    """The code that refuses a sum of this one member, as PEFT saves it."""
    with tempfile.TemporaryDirectory() as folder:
        model.save_pretrained(folder, selected_adapters=[adapter])
        manifest = read_adapter(Path(folder) / adapter, _base()).manifest
    return judge(_base(), manifest).refusals[0].code


def _spec_code() -> str:
    members = [{"ref": NAMES[0], "weight": 1.0}, {"ref": NAMES[1]}]
    try:
        spec_from({"name": "merged", "base": "tiny", "method": "cat", "space": "delta", "members": members})
    except UsageProblemError as refused:
        return refused.code
    return "accepted"


def _cell(value: Value) -> str:
    return value if isinstance(value, str) else f"{float(torch.linalg.norm(value)):.6g}"


if __name__ == "__main__":
    sys.stdout.write(f"PEFT {peft.__version__}, torch {torch.__version__}\n{render(rows())}\n")
