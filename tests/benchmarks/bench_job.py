"""A 7B-shaped job through the service: decide, compose, hash, store and record, with SQLite.

Targets: `delta_svd` of three rank-16 bfloat16 adapters over 224 modules under 12 s on a quiet machine, peak memory
under 1 GiB; a `cat` of 64 members needs no more memory. Few members are tried with rank 1 and with rank 16, since the
rows of the stacks take memory too, whoever they belong to.
"""

from __future__ import annotations

import json
import tempfile
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import torch
from safetensors.torch import save_file

from registry.db import Database, migrate
from registry.service import add, admit
from registry.service.context import Context
from registry.storage import FolderStore
from registry.wiring import LazyComposer
from schemas.spec import CompositionSpec
from tests.benchmarks.inputs import DECODER, LAYERS, WORKERS, Shape, pairs, seven_billion
from tests.benchmarks.measure import peak_mib

RANKS = (16,) * 3
MANY = 64
CONFIG = {
    "model_type": "llama",
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": LAYERS,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "vocab_size": 32000,
    "max_position_embeddings": 4096,
    "hidden_act": "silu",
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
}


def run() -> Iterator[str]:
    """Four lines."""
    with tempfile.TemporaryDirectory(prefix="bench-job-") as folder:
        home = Path(folder)
        url, store = f"sqlite:///{home / 'registry.db'}", home / "store"
        migrate.upgrade(url)
        _register(url, store, home)
        for method, count, rank in (("delta_svd", 3, 16), ("cat", 3, 16), ("cat", 4, 1), ("cat", MANY, 1)):
            peak = peak_mib(compose_job, url, store, method, count, rank, home / "seconds")
            took = (home / "seconds").read_text(encoding="utf-8")
            yield (
                f"job {method} over 7B shapes, {count} of rank {rank}: ours {took} s, peak {peak:.0f} MiB "
                "(targets: delta_svd 12 s, 1024 MiB; cat the same peak for all)"
            )


def compose_job(url: str, store: Path, method: str, count: int, rank: int, result: Path) -> None:
    """Admit one spec; torch is loaded before the clock starts."""
    prefix = "thin" if rank == 1 else "wide"
    spec = {
        "name": f"{method}-{count}", "base": "base", "method": method, "space": "delta",
        "rank": None if method == "cat" else rank,
        "members": [{"ref": f"{prefix}{number}", "weight": 1.0 / count} for number in range(count)],
        "dtype": {"work": "float64", "store": "bfloat16"},
        "acknowledge": ["BASE_EVIDENCE_STRUCTURAL"],
    }  # fmt: skip
    asked = CompositionSpec.model_validate_json(json.dumps(spec))
    with Database(url) as database:
        context = Context(database, FolderStore(store), LazyComposer(WORKERS, 2**30), "bench")
        start = perf_counter()
        answer = admit.admit(context, asked)
        took = perf_counter() - start
    assert answer.composition is not None, answer.decision
    result.write_text(f"{took:.2f}", encoding="utf-8")


def _register(url: str, store: Path, home: Path) -> None:
    with Database(url) as database:
        context = Context(database, FolderStore(store), LazyComposer(WORKERS, 2**30), "bench")
        add.add_base(context, _base(home / "base"), "base", level="structural")
        for number, rank in enumerate(RANKS):
            add.add_adapter(context, _adapter(home / f"wide{number}", rank, number), "base", f"wide{number}")
        for number in range(MANY):
            add.add_adapter(context, _adapter(home / f"thin{number}", 1, number), "base", f"thin{number}")


def _base(directory: Path) -> Path:
    """A base whose weights file has a header and holes: structural evidence reads no more."""
    directory.mkdir()
    (directory / "config.json").write_text(json.dumps(CONFIG), encoding="utf-8")
    shapes: dict[str, Shape] = seven_billion()
    entries, end = {}, 0
    for module, (d_out, d_in) in shapes.items():
        size = 2 * d_out * d_in
        entries[f"{module}.weight"] = {"dtype": "BF16", "shape": [d_out, d_in], "data_offsets": [end, end + size]}
        end += size
    header = json.dumps(entries).encode()
    with (directory / "model.safetensors").open("wb") as file:
        file.write(len(header).to_bytes(8, "little") + header)
        file.truncate(8 + len(header) + end)
    return directory


def _adapter(directory: Path, rank: int, seed: int) -> Path:
    directory.mkdir()
    config = {
        "peft_type": "LORA", "task_type": "CAUSAL_LM", "base_model_name_or_path": "base", "r": rank,
        "lora_alpha": rank, "lora_dropout": 0.0, "bias": "none", "fan_in_fan_out": False, "init_lora_weights": True,
        "use_rslora": False, "use_dora": False, "target_modules": sorted(name.split(".")[1] for name in DECODER),
    }  # fmt: skip
    (directory / "adapter_config.json").write_text(json.dumps(config), encoding="utf-8")
    tensors = {
        f"base_model.model.{module}.lora_{role}.weight": pair[index]
        for module, pair in pairs(seven_billion(), rank, seed, torch.bfloat16).items()
        for index, role in enumerate("AB")
    }
    save_file(tensors, directory / "adapter_model.safetensors")
    return directory
