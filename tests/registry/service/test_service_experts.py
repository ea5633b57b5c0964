"""Adapters of stacked experts that PEFT wrote: their composition is the sum of the deltas PEFT itself applies."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import numpy as np
import pytest
import torch
from numpy.typing import NDArray
from peft import LoraConfig, PeftModel, get_peft_model
from peft.tuners.lora.layer import ParamWrapper

from registry.service import add, admit, export, verify
from registry.service.context import Context
from registry.service.export import Form
from schemas.adapter import FactorManifest
from schemas.spec import CompositionSpec
from tests.registry.formats.models import model
from tests.support import stored

pytestmark = pytest.mark.filterwarnings(
    # PEFT 0.21 asks transformers 5.24 under the older name.
    "ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"
)
Deltas = dict[str, NDArray[np.float64]]
WEIGHTS: Final = {"one": 0.75, "two": -1.5}
RANKS: Final = {"one": 2, "two": 3}
BASES: Final[dict[str, dict[str, Any]]] = {
    "qwen3_moe": {},
    "mixtral": {},
    # Experts of 8 inputs and 8 outputs: the model type tells which axis is which.
    "qwen2_moe": {"moe_intermediate_size": 8},
}


def trained(model_type: str, folder: Path, rank: int) -> Deltas:
    """Write an adapter of both stacked parameters; what PEFT adds to each, [experts, d_out, d_in], by name."""
    parameters = ["experts.gate_up_proj", "experts.down_proj"]
    config = LoraConfig(r=rank, lora_alpha=5, target_modules=[], target_parameters=parameters)
    adapted: Any = get_peft_model(model(model_type, **BASES[model_type]), config)
    torch.manual_seed(rank)
    for name, parameter in adapted.named_parameters():
        if "lora_B" in name:
            torch.nn.init.normal_(parameter)
    adapted.save_pretrained(str(folder))
    return deltas_of(adapted)


def deltas_of(adapted: Any) -> Deltas:
    """What a model of PEFT adds to each stacked parameter, by the parameter's name."""
    found = {}
    for name, module in adapted.base_model.model.named_modules():
        if isinstance(module, ParamWrapper):
            path = f"{name.removesuffix('.base_layer')}.{module.parameter_name}"
            found[path] = module.get_delta_weight("default").detach().double().numpy()
    return found


def delta(factor: FactorManifest, a: NDArray[Any], b: NDArray[Any], experts: int) -> NDArray[np.float64]:
    """``D[e] = s b[:, :, e] a[e]`` of a manifest's factor."""
    outer, inner = a.reshape(experts, -1, a.shape[1]), b.reshape(b.shape[0], -1, experts)
    product: NDArray[np.float64] = np.einsum("ore,eri->eoi", inner.astype(np.float64), outer.astype(np.float64))
    return factor.scale.value * product


def composed(registry: Context, name: str, **spec: Any) -> Deltas:
    """The deltas of a composition of both adapters."""
    members = [{"ref": ref, "weight": weight} for ref, weight in WEIGHTS.items()]
    asked = {"name": name, "base": "moe", "space": "delta", "members": members, **spec}
    made = admit.admit(registry, CompositionSpec.model_validate_json(json.dumps(asked)))
    assert made.output is not None, made.decision
    output = stored.load(registry, made.output)
    arrays = stored.arrays_of(registry, output)
    assert {factor.order for factor in output.factors} == {"B[o,r,e]A[e,r,i]"}
    return {
        factor.module: delta(factor, arrays[factor.module].a, arrays[factor.module].b, factor.a.shape[0] // factor.rank)
        for factor in output.factors
    }


@pytest.mark.parametrize("model_type", BASES)
def test_the_composition_is_the_sum_of_what_peft_applies(context: Context, tmp_path: Path, model_type: str) -> None:
    model(model_type, **BASES[model_type]).save_pretrained(tmp_path / "base")
    add.add_base(context, tmp_path / "base", "moe")
    applied = {name: trained(model_type, tmp_path / name, rank) for name, rank in RANKS.items()}
    for name in applied:
        add.add_adapter(context, tmp_path / name, "moe", name)
    exact = {
        module: sum(weight * applied[name][module] for name, weight in WEIGHTS.items()) for module in applied["one"]
    }
    whole = composed(context, "sum", method="cat")
    assert whole.keys() == exact.keys()
    best = composed(context, "best", method="delta_svd", rank=3)
    for module, wanted in exact.items():
        np.testing.assert_allclose(whole[module], wanted, rtol=0, atol=2e-6 * float(np.abs(wanted).max()))
        u, s, vh = np.linalg.svd(wanted)
        cut = (u[:, :, :3] * s[:, None, :3]) @ vh[:, :3]
        np.testing.assert_allclose(best[module], cut, rtol=0, atol=5e-6 * float(np.abs(wanted).max()))
    assert verify.verify(context, recompute=True).faults == ()
    export.export(context, "sum", tmp_path / "out", Form(base_name=str(tmp_path / "base")))
    loaded = PeftModel.from_pretrained(model(model_type, **BASES[model_type]), str(tmp_path / "out"))
    for module, served in deltas_of(loaded).items():
        np.testing.assert_allclose(served, exact[module], rtol=0, atol=2e-6 * float(np.abs(exact[module]).max()))
