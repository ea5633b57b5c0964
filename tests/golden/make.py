"""Write the published test vectors: JSON in, digest out (`python -m tests.golden.make`).

Until 1.0 they are regenerated only together with a decision record that says why an identity changed; afterwards never.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Final

from schemas.base import BaseManifest, WeightRef, weights_digest
from schemas.canonical import JsonObject, JsonValue
from schemas.digests import BlobHasher, tensor_digest
from schemas.model import Manifest, validate
from tests.routed.documents import stated
from tests.schemas.chain import build, digest_of

FOLDER: Final = Path(__file__).parent / "v0"
TENSORS: Final[tuple[tuple[str, tuple[int, ...], str], ...]] = (
    ("F32", (2, 2), "0000803f000000c00000003f00000000"),
    ("F32", (4,), "0000803f000000c00000003f00000000"),
    ("I32", (2, 2), "0000803f000000c00000003f00000000"),
    ("BF16", (1, 3), "803f00c0003f"),
    ("F64", (), "000000000000f03f"),
    ("U8", (0,), ""),
)


def vectors() -> dict[str, list[JsonObject]]:
    """All vectors by file name without its ending."""
    written = {"blob": [_blob(data) for data in (b"", b"\0", b"adapter-registry", bytes(range(251)) * 9)]}
    written["tensor"] = [
        {"dtype": dtype, "shape": list(shape), "hex": data, "digest": tensor_digest(dtype, shape, bytes.fromhex(data))}
        for dtype, shape, data in TENSORS
    ]
    for manifest in (*build().values(), _read_base(), *stated()):
        written.setdefault(manifest.KIND, []).append(_manifest(manifest))
    return written


def render(entries: list[JsonObject]) -> str:
    """One file's text."""
    return json.dumps(entries, indent=1, sort_keys=True, ensure_ascii=False) + "\n"


def _blob(data: bytes) -> JsonObject:
    hasher = BlobHasher()
    hasher.update(data)
    found = hasher.finish()
    return {"hex": data.hex(), "digest": found.digest, "sha256": found.sha256, "size": found.size}


def _manifest(manifest: Manifest) -> JsonObject:
    canonical: JsonValue = manifest.canonical().decode()
    return {"document": manifest.document(), "canonical": canonical, "digest": manifest.digest}


def _read_base() -> Manifest:
    weights = {
        name: WeightRef(tensor=digest_of(name), dtype="F32", shape=shape)
        for name, shape in (("layers.0.q_proj.weight", (6, 6)), ("layers.0.q_proj.bias", (6,)))
    }
    document = build()["base"].document() | {
        "weights": {name: weight.document() for name, weight in weights.items()},
        "weights_digest": weights_digest(weights),
        "tokenizer": "none",
    }
    return validate(BaseManifest, document)


if __name__ == "__main__":
    for stem, entries in vectors().items():
        (FOLDER / f"{stem}.json").write_text(render(entries), encoding="utf-8")
