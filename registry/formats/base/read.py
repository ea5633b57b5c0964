"""Read a base directory into its manifest."""

from __future__ import annotations

from pathlib import Path
from typing import Final, Literal

from registry.errors import RefusedError
from registry.formats.base.config import read_architecture, ties_word_embeddings
from registry.formats.base.keys import CONFIG
from registry.formats.base.modules import distinct_weights
from registry.formats.base.naming import MODEL_TYPES
from registry.formats.base.packed import read_quantizer, unread_quantizer
from registry.formats.base.tokenizer import SPECIAL_TOKEN_FILES, TOKENIZER, read_tokenizer
from registry.formats.base.weights import INDEX, SINGLE, Weights, find_layout, read_content, read_headers
from registry.formats.directory import Directory, open_directory, open_file
from registry.formats.gguf.read import SUFFIX, read_gguf
from registry.formats.readings import BaseReading, Evidence, FileReading, Progress, TensorLocation
from registry.formats.report import located, problem, shown
from schemas.architectures import KnownArchitecture
from schemas.base import BaseManifest, WeightRef, weights_digest

KEPT: Final = (
    "README.md", "added_tokens.json", "chat_template.jinja", "generation_config.json", "merges.txt", "vocab.json",
    "vocab.txt",
)  # fmt: skip
"""Files that are no identity but belong to the packaging, and are listed when present."""


def read_base(
    directory: Path, *, evidence: Evidence = "content", progress: Progress | None = None, jobs: int = 1
) -> BaseReading:
    """Read a base model.

    Args:
        directory: as transformers' `save_pretrained` lays it out; or a GGUF file, or a directory with one. Files this
            room does not know are not read; pickles beside safetensors weights neither, and alone they are refused.
        evidence: `content` hashes every weight, `structural` reads headers and how weights are packed, `declared`
            neither; what was not read is `not_verified`.
        progress: called with the bytes of weights just read.
        jobs: weight files hashed at the same time.

    Raises:
        RefusedError: every rule of this room; problems carry file and key.
        UsageProblemError: `DIRECTORY_MISSING`.
    """
    checked = open_directory(directory) if directory.is_dir() else open_file(directory)
    container = _container(checked)
    if container is not None:
        return read_gguf(checked, container, evidence, progress)
    config, config_file = checked.read_object(CONFIG)
    architecture = read_architecture(config)
    tokenizer, tokenizer_files = read_tokenizer(checked)
    weights = None if evidence == "declared" else _read_weights(checked, evidence, progress, jobs)
    quantizer = read_quantizer(config, weights.stored) if weights else unread_quantizer(config)
    with located(CONFIG):
        refs = _identity(weights, architecture, tied=ties_word_embeddings(config))
        manifest = BaseManifest(
            weights=refs,
            weights_digest=weights_digest(refs),
            architecture=architecture,
            tokenizer="none" if tokenizer is None else tokenizer,
            quantizer=quantizer,
        )
    files = (config_file, *tokenizer_files, *(weights.files if weights else ()), *_kept(checked))
    locations = _locations(weights, architecture) if weights else ()
    return BaseReading(manifest, tuple(sorted(files, key=lambda file: file.path)), locations)


def _container(directory: Directory) -> str | None:
    """The one GGUF file that is the base, where there are no safetensors."""
    found = sorted(name for name in directory.names if name.endswith(SUFFIX))
    if not found or SINGLE in directory.names or INDEX in directory.names:
        return None
    if len(found) > 1:
        hint = "Give the path of the file itself."
        raise RefusedError(problem("LAYOUT_AMBIGUOUS", (), "one GGUF file", shown(found), hint))
    return found[0]


def _read_weights(directory: Directory, evidence: Evidence, progress: Progress | None, jobs: int) -> Weights:
    layout = find_layout(directory)
    if evidence == "structural":
        return read_headers(directory, layout)
    return read_content(directory, layout, progress, jobs)


def _identity(
    weights: Weights | None, architecture: KnownArchitecture, *, tied: bool
) -> dict[str, WeightRef] | Literal["not_verified"]:
    if weights is None:
        return "not_verified"
    return distinct_weights(weights.refs, architecture.model_type, tied=tied)


def _locations(weights: Weights, architecture: KnownArchitecture) -> tuple[TensorLocation, ...]:
    buffers = MODEL_TYPES[architecture.model_type].buffers
    return tuple(place for name, place in weights.locations.items() if not buffers.fullmatch(name))


def _kept(directory: Directory) -> tuple[FileReading, ...]:
    listed = KEPT if TOKENIZER in directory.names else (*KEPT, *SPECIAL_TOKEN_FILES)
    return tuple(directory.digest_file(name) for name in listed if name in directory.names)
