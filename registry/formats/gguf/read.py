"""Read a GGUF file as a base: architecture from its metadata, weights by their packed bytes."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import BinaryIO, Final, Literal

from registry.errors import RefusedError
from registry.formats.base.config import read_architecture
from registry.formats.directory import Directory
from registry.formats.gguf.blocks import LAYOUTS
from registry.formats.gguf.header import Array, GgufHeader, Value, read_gguf_header
from registry.formats.gguf.names import ARCHITECTURES, HEAD_WIDTHS, KEYS, NEEDED, GgufArchitecture, canonical_name
from registry.formats.readings import BaseReading, Evidence, Progress
from registry.formats.report import problem, refuse_all, shown
from registry.formats.safetensors_file import Header
from registry.formats.scan import ScannedFile, scan_file
from schemas.architectures import KnownArchitecture
from schemas.base import BaseManifest, TokenizerRef, WeightRef, weights_digest
from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.digests import manifest_digest
from schemas.errors import Problem
from schemas.model import NotVerified
from schemas.quantizers import GgufQuantizer

SUFFIX: Final = ".gguf"
_TEMPLATES: Final = "tokenizer.chat_template"
_TOKENS: Final = "tokenizer.ggml.tokens"
_LAYERS: Final = "block_count"


def read_gguf(directory: Directory, name: str, evidence: Evidence, progress: Progress | None) -> BaseReading:
    """Read one GGUF file.

    Identity covers the metadata that changes the function, every tensor by its packed bytes and its block type, and
    the tokenizer's entries as stored. `structural` and `declared` read the header only.

    Raises:
        RefusedError: what `read_gguf_header` refuses; `MODEL_TYPE_UNLISTED`, `CONFIG_KEY_UNKNOWN`,
            `CONFIG_FIELD_MISSING`, `CONFIG_FIELD_CONFLICT`, `WEIGHT_UNKNOWN`.
    """
    with directory.open(name) as stream:
        found = read_gguf_header(stream, os.fstat(stream.fileno()).st_size, name)
    rule = _rule(found, name)
    refuse_all(_key_problems(found, name))
    names = _names(found, rule, name)
    architecture = _architecture(found, rule, names, name)
    scanned = _scanned(directory, name, found, progress) if evidence == "content" else None
    weights = "not_verified" if evidence == "declared" else _weights(found, names, scanned)
    manifest = BaseManifest(
        weights=weights,
        weights_digest=weights_digest(weights),
        architecture=architecture,
        tokenizer=_tokenizer(found),
        quantizer=_quantizer(found, rule),
    )
    if scanned is None:
        return BaseReading(manifest, (), ())
    return BaseReading(manifest, (scanned.file,), tuple(tensor.location(scanned.file) for tensor in scanned.tensors))


def _rule(found: GgufHeader, name: str) -> GgufArchitecture:
    architecture = found.metadata.get("general.architecture")
    if isinstance(architecture, str) and architecture in ARCHITECTURES:
        return ARCHITECTURES[architecture]
    hint = "Register the model it was converted from, or ask for this architecture's names to be listed."
    path = (name, "general.architecture")
    expected = f"one of {', '.join(sorted(ARCHITECTURES))}"
    raise RefusedError(problem("MODEL_TYPE_UNLISTED", path, expected, shown(architecture), hint))


def _settings(found: GgufHeader) -> dict[str, Value]:
    """The metadata of the architecture itself, without its prefix."""
    prefix = f"{found.metadata['general.architecture']}."
    return {key.removeprefix(prefix): value for key, value in found.metadata.items() if key.startswith(prefix)}


def _key_problems(found: GgufHeader, name: str) -> Iterator[Problem]:
    """Every key outside descriptions and tokenizer is understood, and what the architecture needs is there."""
    settings = _settings(found)
    prefix = f"{found.metadata['general.architecture']}."
    for key, value in found.metadata.items():
        setting = key.removeprefix(prefix)
        known = key.startswith(("general.", "tokenizer.")) or setting in KEYS or setting in HEAD_WIDTHS
        if not known and (setting, value) != ("rope.scaling.type", "none"):
            hint = "This setting may change what the model computes and is not understood; it cannot be dropped."
            yield problem("CONFIG_KEY_UNKNOWN", (name, key), "a key known for this architecture", shown(value), hint)
    for key in NEEDED:
        if key not in settings:
            hint = "Convert the model again."
            yield problem("CONFIG_FIELD_MISSING", (name, prefix + key), "a number", "no such key", hint)
    widths = {settings[key] for key in HEAD_WIDTHS if key in settings}
    if len(widths) > 1:
        hint = "Heads that are turned in part are not understood."
        yield problem("CONFIG_FIELD_CONFLICT", (name, prefix + HEAD_WIDTHS[0]), "one width", shown(widths), hint)


def _names(found: GgufHeader, rule: GgufArchitecture, name: str) -> dict[str, str]:
    count = _settings(found)[_LAYERS]
    layers = count if type(count) is int else 0
    names = {entry.name: canonical_name(rule, entry.name, layers) for entry in found.header.tensors}
    hint = "A tensor that is not understood cannot be dropped; register the model it was converted from."
    refuse_all(
        problem("WEIGHT_UNKNOWN", (name, stored), f"a tensor of {rule.model_type}", shown(stored), hint)
        for stored, canonical in names.items()
        if canonical is None
    )
    return {stored: canonical for stored, canonical in names.items() if canonical is not None}


def _architecture(found: GgufHeader, rule: GgufArchitecture, names: dict[str, str], name: str) -> KnownArchitecture:
    settings = _settings(found)
    document: JsonObject = {KEYS[key]: _json(value) for key, value in settings.items() if key in KEYS}
    widths = [_json(settings[key]) for key in HEAD_WIDTHS if key in settings]
    rows = [entry.shape[0] for entry in found.header.tensors if names[entry.name] == "model.embed_tokens.weight"]
    document |= {"model_type": rule.model_type, "tie_word_embeddings": "lm_head.weight" not in names.values()}
    document |= {"head_dim": widths[0]} if widths else {}
    document.setdefault("vocab_size", rows[0] if rows else None)
    return read_architecture(document, name)


def _json(value: Value) -> JsonValue:
    return value.count if isinstance(value, Array) else value


def _scanned(directory: Directory, name: str, found: GgufHeader, progress: Progress | None) -> ScannedFile:
    def expected(stream: BinaryIO, size: int, path: str) -> Header:
        again = read_gguf_header(stream, size, path)
        if again != found:
            hint = "Wait until nothing writes to the file, then read it again."
            raise RefusedError(problem("FILE_CHANGED", (path,), "the header it had", "another header", hint))
        return again.header

    return scan_file(directory, name, progress=progress, header=expected)


def _weights(
    found: GgufHeader, names: dict[str, str], scanned: ScannedFile | None
) -> dict[str, WeightRef] | NotVerified:
    digests = {tensor.entry.name: tensor.digest for tensor in scanned.tensors} if scanned else {}
    return {
        names[entry.name]: WeightRef(
            tensor=digests.get(entry.name, "not_verified"), dtype=entry.dtype, shape=entry.shape
        )
        for entry in found.header.tensors
    }


def _quantizer(found: GgufHeader, rule: GgufArchitecture) -> GgufQuantizer:
    return GgufQuantizer(
        scheme="gguf",
        architecture=str(found.metadata["general.architecture"]),
        rotary_rows=rule.rotary_rows,
        blocks={entry.dtype: LAYOUTS[entry.dtype] for entry in found.header.tensors},
    )


def _tokenizer(found: GgufHeader) -> TokenizerRef | Literal["none"]:
    tokens = found.metadata.get(_TOKENS)
    if not isinstance(tokens, Array):
        return "none"
    entries: JsonObject = {
        key: digest
        for key, digest in found.digests.items()
        if key.startswith("tokenizer.") and not key.startswith(_TEMPLATES)
    }
    digest = manifest_digest("tokenizer", canonical_bytes({"gguf": entries}))
    return TokenizerRef(digest=digest, length=tokens.count)
