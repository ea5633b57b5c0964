"""Small sound directories of every producer, as files in memory: what mutations start from."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, Final

import numpy as np
from safetensors.numpy import save_file

from tests.registry.formats.producers import grammars
from tests.registry.formats.producers.bases import GROUPS, HEAD_DIM, HEADS, HIDDEN, INNER, LAYERS, VOCABULARY, WIDE
from tests.registry.formats.producers.grammars import Draw, dump, peft_config

Files = dict[str, bytes]
DATA: Final = Path(grammars.__file__).parent / "data"
ROOT: Final = "base_model.model."


def peft(
    directory: Path, modules: dict[str, tuple[int, int]], ranks: dict[str, int] | None = None, **config: Any
) -> None:
    """A PEFT directory; a magnitude on each module where the config says DoRA."""
    draw, arrays = Draw(11), dict[str, Any]()
    for module, (d_out, d_in) in modules.items():
        rank, key = (ranks or {}).get(module, 2), ROOT + module
        table = module.endswith("embed_tokens")
        arrays[f"{key}.lora_embedding_A" if table else f"{key}.lora_A.weight"] = draw(rank, d_in)
        arrays[f"{key}.lora_embedding_B" if table else f"{key}.lora_B.weight"] = draw(d_out, rank)
        if config.get("use_dora"):
            arrays[f"{key}.lora_magnitude_vector"] = np.abs(draw(d_out))
    dump(directory / "adapter_config.json", peft_config([], **{"r": 2, "lora_alpha": 3} | config))
    save_file(arrays, directory / "adapter_model.safetensors")


def _attention(leaf: str, d_out: int) -> dict[str, tuple[int, int]]:
    return {f"model.layers.{layer}.self_attn.{leaf}": (d_out, WIDE) for layer in range(LAYERS)}


QUERY: Final = _attention("q_proj", HEADS * HEAD_DIM)
KEY: Final = _attention("k_proj", GROUPS * HEAD_DIM)
BERT: Final = {f"encoder.layer.{layer}.intermediate.dense": (INNER, HIDDEN) for layer in range(LAYERS)}
GPT2: Final = {f"transformer.h.{layer}.attn.c_attn": (3 * HIDDEN, HIDDEN) for layer in range(LAYERS)}
TABLE: Final = {"model.embed_tokens": (WIDE, VOCABULARY)}

PEFT: Final[dict[str, tuple[str, Callable[[Path], object]]]] = {
    "peft-plain": ("llama", lambda d: peft(d, QUERY | KEY, target_modules=["q_proj", "k_proj"], lora_dropout=0.1)),
    "peft-rslora": ("bert", lambda d: peft(d, BERT, target_modules=["intermediate.dense"], use_rslora=True)),
    "peft-patterns": (
        "llama",
        lambda d: peft(
            d,
            QUERY,
            {"model.layers.1.self_attn.q_proj": 4},
            target_modules=["q_proj"],
            rank_pattern={"layers.1.self_attn.q_proj": 4},
            alpha_pattern={"layers.2.self_attn.q_proj": 7},
        ),
    ),
    "peft-dora": ("llama", lambda d: peft(d, KEY, target_modules=["k_proj"], use_dora=True)),
    "peft-conv1d": ("gpt2", lambda d: peft(d, GPT2, target_modules=["c_attn"], fan_in_fan_out=True)),
    "peft-table": ("llama", lambda d: peft(d, QUERY | TABLE, target_modules=["q_proj", "embed_tokens"])),
}
ROUTED: Final[dict[str, tuple[str, Callable[[Path], object]]]] = {
    "hydralora": ("llama", lambda d: grammars.routed(d, shared=True)),
    "loramoe": ("llama", lambda d: grammars.routed(d, shared=False)),
}


@lru_cache
def seeds() -> dict[str, tuple[str, Files]]:
    """Model type and files by name."""
    found = {}
    for name, (model_type, write) in {**PEFT, **grammars.EXPECTED, **ROUTED}.items():
        with TemporaryDirectory() as folder:
            write(Path(folder))
            found[name] = (model_type, _files(Path(folder)))
    for path in sorted(DATA.iterdir()):
        found[path.name] = (path.name.split("-")[1], _files(path))
    return found


def _files(directory: Path) -> Files:
    return {path.name: path.read_bytes() for path in sorted(directory.iterdir()) if path.is_file()}
