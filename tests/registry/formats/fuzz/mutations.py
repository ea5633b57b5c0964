"""Seeded damage to directories: cut and flipped bytes, headers, configs, key names, whole files."""

from __future__ import annotations

import json
from collections.abc import Callable
from random import Random
from typing import Any, Final

import yaml

from tests.registry.formats.fuzz.seeds import Files

VALUES: Final[tuple[Any, ...]] = (
    None, True, False, 0, 1, -1, 2, 3, 4, 16, 2**31, 2**53, 2**70, 0.5, -2.0, 1e308, 1e-320, "", "x", "lora",
    "dora", "gaussian", "pissa", "q_proj", ".*q_proj", "(", "all-linear", [], [1], ["q_proj"], ["x", None], [[[]]], {},
    {"a": 1}, {"q_proj": 4}, {"": {}}, "\u0000", "\ufffd", "9" * 400,
)  # fmt: skip
NAMES: Final = (
    "a", "lora_A.weight", ".lora_A.weight", "base_model.model..lora_B.weight", "lora_te_x.alpha", "x.lora_a", "é",
    "text_encoder.x.lora_A.weight", "unet.x.lora.up.weight", "\n", "base_model.model.lm_head.weight", "layers.0",
    "base_model.model.score.weight", "lora_unet_x.lora_up.weight",
)  # fmt: skip
FILE_NAMES: Final = (
    "adapter_config.json", "adapter_model.safetensors", "adapters.safetensors", "model_config.yaml", "x.safetensors",
    "pytorch_lora_weights.safetensors", "optimizer.pt", "rearranged.safetensors", "README.md", "xlora_config.json",
    "adapter_model.safetensors.index.json", "tokenizer.json", "token_rows.safetensors", "a.gguf",
    "0000001_adapters.safetensors",
)  # fmt: skip
LARGEST: Final = 8000
"""No config of the seeds is larger; what is, was made so before, and is slow to read."""
DTYPES: Final = ("F64", "F32", "F16", "BF16", "I64", "I32", "U8", "BOOL", "F8_E4M3", "F4", "X", "")


def mutated(files: Files, random: Random) -> Files:
    """The files with one to three kinds of damage."""
    found = dict(files)
    for _ in range(random.choice((1, 1, 1, 2, 3))):
        found = random.choice(_MUTATIONS)(found, random)
    return found


def _pick(files: Files, random: Random, *ends: str) -> str | None:
    names = [name for name in sorted(files) if not ends or name.endswith(ends)]
    return random.choice(names) if names else None


def _cut(files: Files, random: Random) -> Files:
    name = _pick(files, random)
    return files if name is None else files | {name: files[name][: random.randrange(len(files[name]) + 1)]}


def _flip(files: Files, random: Random) -> Files:
    name = _pick(files, random)
    if name is None or not files[name]:
        return files
    data = bytearray(files[name])
    for _ in range(random.choice((1, 1, 4, 32))):
        # Half of the flips hit the beginning, where headers are.
        place = random.randrange(len(data) if random.random() < 0.5 else min(len(data), 400))
        data[place] = random.randrange(256)
    return files | {name: bytes(data)}


def _grow(files: Files, random: Random) -> Files:
    name = _pick(files, random)
    return files if name is None else files | {name: files[name] + random.randbytes(random.choice((1, 8, 64)))}


def _file(files: Files, random: Random) -> Files:
    name, other = _pick(files, random), random.choice(FILE_NAMES)
    if name is None or random.random() < 0.3:
        return files | {other: random.choice((b"", b"{}", b"[]", b"\x80\x02", random.randbytes(20)))}
    found = dict(files)
    content = found.pop(name)
    return found if random.random() < 0.4 else found | {other: content}


def _header(files: Files, random: Random) -> Files:
    name = _pick(files, random, ".safetensors")
    parts = _parts(files[name]) if name is not None else None
    if name is None or parts is None or not parts[0]:
        return files
    header, data = parts
    key = random.choice(sorted(header))
    random.choice(_HEADER_EDITS)(header, key, random)
    text = json.dumps(header).encode()
    return files | {name: len(text).to_bytes(8, "little") + text + data}


def _parts(content: bytes) -> tuple[dict[str, Any], bytes] | None:
    length = int.from_bytes(content[:8], "little")
    try:
        header = json.loads(content[8 : 8 + length])
    except ValueError:
        return None
    return (header, content[8 + length :]) if isinstance(header, dict) else None


def _rename(header: dict[str, Any], key: str, random: Random) -> None:
    other = random.choice(sorted(header))
    edits: tuple[Callable[[], str], ...] = (
        lambda: random.choice(NAMES),
        lambda: other,
        lambda: key.replace("lora_A", "lora_B").replace("down", "up").replace("lora_a", "lora_b"),
        lambda: key.replace(".0.", ".1.").replace("_0_", "_1_"),
        lambda: key.replace(".", "_", 1),
        lambda: key + random.choice(("x", ".weight", ".default")),
        lambda: key.removeprefix("base_model."),
        lambda: key[random.randrange(len(key)) :] if key else "x",
        lambda: key.replace("query", "value").replace("q_proj", "k_proj"),
    )
    header[random.choice(edits)()] = header.pop(key)


def _shape(header: dict[str, Any], key: str, random: Random) -> None:
    entry = header[key]
    if not isinstance(entry, dict) or "shape" not in entry:
        return
    shape = list(entry["shape"]) if isinstance(entry["shape"], list) else []
    entry["shape"] = random.choice(
        (shape[::-1], [*shape, 1], shape[1:], [1, *shape], [-1], [2**40, 2**40], 3, [0], [0, 8])
    )


def _dtype(header: dict[str, Any], key: str, random: Random) -> None:
    if isinstance(header[key], dict):
        header[key]["dtype"] = random.choice(DTYPES)


def _offsets(header: dict[str, Any], key: str, random: Random) -> None:
    if isinstance(header[key], dict):
        offsets = header[random.choice(sorted(header))]
        header[key]["data_offsets"] = random.choice(
            (
                [0, 8],
                [8, 0],
                [0, 2**60],
                [-8, 0],
                [],
                [0],
                "x",
                offsets.get("data_offsets") if isinstance(offsets, dict) else 1,
            )
        )


def _swap(header: dict[str, Any], key: str, random: Random) -> None:
    other = random.choice(sorted(header))
    header[key], header[other] = header[other], header[key]


def _drop(header: dict[str, Any], key: str, random: Random) -> None:
    del random
    header.pop(key)


def _value(header: dict[str, Any], key: str, random: Random) -> None:
    header[random.choice((key, "__metadata__", "new"))] = random.choice(VALUES)


_HEADER_EDITS: Final = (_rename, _rename, _rename, _shape, _dtype, _offsets, _swap, _drop, _drop, _value)


def _config(files: Files, random: Random) -> Files:
    name = _pick(files, random, ".json", ".yaml")
    if name is None or len(files[name]) > LARGEST:
        return files
    try:
        document = json.loads(files[name]) if name.endswith(".json") else yaml.safe_load(files[name])
    except (ValueError, yaml.YAMLError, RecursionError):
        return files
    _edit(document, random)
    return files | {name: json.dumps(document).encode()}


def _edit(document: Any, random: Random) -> None:
    """One change somewhere inside."""
    while isinstance(document, dict) and document:
        key = random.choice(sorted(document))
        if isinstance(document[key], dict) and document[key] and random.random() < 0.7:
            document = document[key]
            continue
        choice = random.random()
        if choice < 0.15:
            del document[key]
        elif choice < 0.3:
            document[random.choice((*_FIELDS, "unknown_field"))] = random.choice(VALUES)
        else:
            document[key] = random.choice(VALUES)
        return


_FIELDS: Final = (
    "r", "lora_alpha", "use_rslora", "use_dora", "fan_in_fan_out", "lora_bias", "target_modules", "rank_pattern",
    "alpha_pattern", "layers_to_transform", "exclude_modules", "modules_to_save", "init_lora_weights", "lora_nums",
    "r_sum", "peft_type", "fine_tune_type", "num_layers", "lora_parameters", "use_qalora", "peft_version", "alpha",
    "trainable_token_indices", "target_parameters", "bias", "save_loranew", "scale", "keys",
)  # fmt: skip


def _broken(files: Files, random: Random) -> Files:
    name = _pick(files, random, ".json", ".yaml")
    if name is None:
        return files
    deep = random.choice((10, 2000, 20_000))
    contents = (
        b"[" * deep, b'{"a":' * deep, b"{", b"null", b'{"r": NaN}', b'{"r": 1e999}', b'{"r": 1, "r": 2}', b"\xff\xfe",
        b"a: &a [*a]", b"- [", b"{" + b'"peft_type": "LORA"', b"? [1]\n: 2", b"a: 2000-99-99", b"1: 2",
    )  # fmt: skip
    return files | {name: random.choice(contents)}


_MUTATIONS: Final = (
    _cut,
    _flip,
    _flip,
    _grow,
    _file,
    _header,
    _header,
    _header,
    _header,
    _config,
    _config,
    _config,
    _broken,
)
