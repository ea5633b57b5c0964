"""tokenizer.json as identity: what text becomes which ids, without settings of a single call."""

from __future__ import annotations

from typing import Final

from registry.errors import RefusedError
from registry.formats.directory import Directory
from registry.formats.readings import FileReading
from registry.formats.report import located, problem
from schemas.base import TokenizerRef
from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.digests import manifest_digest

TOKENIZER: Final = "tokenizer.json"
LARGEST_TOKENIZER: Final = 256 * 2**20
SPECIAL_TOKEN_FILES: Final = ("special_tokens_map.json", "tokenizer_config.json")
SPECIAL_TOKENS: Final = ("bos", "cls", "eos", "mask", "pad", "sep", "unk")
PER_CALL: Final = frozenset({"padding", "truncation"})


def read_tokenizer(directory: Directory) -> tuple[TokenizerRef | None, tuple[FileReading, ...]]:
    """The semantic tokenizer and its files; null when there is no tokenizer.json.

    Identity is the JCS form of tokenizer.json without padding and truncation, and the ids of the special tokens. A chat
    template changes no id and is left out.

    Raises:
        RefusedError: `TOKENIZER_INVALID`, `JSON_*`.
    """
    if TOKENIZER not in directory.names:
        return None, ()
    document, reading = directory.read_object(TOKENIZER, LARGEST_TOKENIZER)
    with located(TOKENIZER):
        vocabulary = _vocabulary(document)
        settings, files = _special_token_settings(directory)
        semantic: JsonObject = {
            "tokenizer": {key: value for key, value in document.items() if key not in PER_CALL},
            "special_token_ids": _special_ids(settings, vocabulary),
        }
        digest = manifest_digest("tokenizer", canonical_bytes(semantic))
    return TokenizerRef(digest=digest, length=len(set(vocabulary.values()))), (reading, *files)


def _special_token_settings(directory: Directory) -> tuple[JsonObject, tuple[FileReading, ...]]:
    """Special tokens by role; tokenizer_config.json wins, as in transformers."""
    settings: JsonObject = {}
    files = []
    for name in SPECIAL_TOKEN_FILES:
        if name in directory.names:
            document, reading = directory.read_object(name)
            settings |= {key: value for key, value in document.items() if value is not None}
            files.append(reading)
    return settings, tuple(files)


def _special_ids(settings: JsonObject, vocabulary: dict[str, int]) -> JsonObject:
    ids: JsonObject = {}
    for role in SPECIAL_TOKENS:
        token = settings.get(f"{role}_token")
        content = token.get("content") if isinstance(token, dict) else token
        ids[role] = vocabulary.get(content) if isinstance(content, str) else None
    return ids


def _vocabulary(document: JsonObject) -> dict[str, int]:
    """Token to id, added tokens included; Unigram numbers its list by position."""
    model = document.get("model")
    vocab = model.get("vocab") if isinstance(model, dict) else None
    found: dict[str, int] = {}
    if isinstance(vocab, dict):
        found = {token: index for token, index in vocab.items() if type(index) is int}
    elif isinstance(vocab, list):
        found = {_piece(item): index for index, item in enumerate(vocab)}
    added = document.get("added_tokens") or []
    for item in added if isinstance(added, list) else []:
        if isinstance(item, dict) and isinstance(item.get("content"), str) and type(item.get("id")) is int:
            found[str(item["content"])] = int(str(item["id"]))
    if not found:
        hint = "Save the tokenizer again with the tokenizers library."
        raise RefusedError(problem("TOKENIZER_INVALID", ("model", "vocab"), "a vocabulary", "none", hint))
    return found


def _piece(item: JsonValue) -> str:
    return str(item[0]) if isinstance(item, list) and item else ""
