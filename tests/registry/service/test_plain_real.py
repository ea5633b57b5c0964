"""Plain LoRA of what PEFT saved: a reader of alpha / r alone, and PEFT itself, merge it to the producer's weights."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from registry.errors import RefusedError
from registry.formats.base.naming import loaded_name
from registry.service import add, export
from registry.service.context import Context
from registry.service.export import Form
from tests.registry.formats.producers.make_peft import CASES, _merged, make
from tests.support.plain_reader import read_plain

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    # AdaLoRA's patterns are no module patterns, and PEFT 0.21 looks for them all the same.
    pytest.mark.filterwarnings("ignore:The following rank_pattern keys did not match:RuntimeWarning"),
    # PEFT 0.21 asks transformers 5.24 under the older name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
    pytest.mark.parametrize("database_url", ["sqlite"], indirect=True),
]
PLAIN = (
    "lora", "rslora-patterns", "all-linear", "layers-to-transform", "exclude", "output", "embedding", "pissa-converted",
    "adalora-pruned", "gpt2-conv1d", "gpt2-conv1d-adalora", "parameter-of-a-linear",
)  # fmt: skip
NOT_PLAIN = {
    "dora": "FACTORS_NOT_PLAIN",
    "bert-lora-bias": "FACTORS_NOT_PLAIN",
    "vit-conv2d": "FACTORS_NOT_PLAIN",
    "experts-one": "FACTORS_NOT_PLAIN",
    "saved-norm": "NOT_PLAIN_LORA",
    "token-rows": "NOT_PLAIN_LORA",
    "bert-bias-all": "NOT_PLAIN_LORA",
    "pissa-native": "NOT_PLAIN_LORA",
}


@pytest.mark.parametrize("name", PLAIN)
def test_plain_lora_is_the_producers_function(context: Context, tmp_path: Path, name: str) -> None:
    case = CASES[name]
    made = make(case, tmp_path)
    add.add_base(context, made.base, "base")
    add.add_adapter(context, made.adapter, "base", "one")
    out = tmp_path / "out"
    export.export(context, "one", out, Form(str(made.base), "plain-lora"))
    deltas = read_plain(out)
    for key, after in made.after.items():
        module = key.removesuffix(".weight")
        delta = deltas.get(loaded_name(case.model_type, module), np.zeros(1))
        # GPT-2's Conv1D stores its weight input first.
        turned = delta.T if case.model_type == "gpt2" and "wpe" not in module else delta
        np.testing.assert_allclose(made.before[key] + turned, after, rtol=0, atol=2e-6, err_msg=key)
    _, merged = _merged(case, made.base, out)
    for key, after in made.after.items():
        np.testing.assert_allclose(merged[key], after, rtol=0, atol=2e-6, err_msg=key)


@pytest.mark.parametrize("name", NOT_PLAIN)
def test_what_plain_lora_cannot_say_is_refused(context: Context, tmp_path: Path, name: str) -> None:
    made = make(CASES[name], tmp_path)
    add.add_base(context, made.base, "base")
    add.add_adapter(context, made.adapter, "base", "one")
    with pytest.raises(RefusedError, match=NOT_PLAIN[name]):
        export.export(context, "one", tmp_path / "out", Form("base", "plain-lora"))
    assert not (tmp_path / "out").exists()
