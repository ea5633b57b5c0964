"""Bytes with other digests filled in are those that a manifest with these digests is written as."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from registry.formats.outline import Outline
from registry.formats.safetensors_file import TensorEntry
from schemas.adapter import AdapterManifest, FactorManifest, FullReplacement, make_scale, sorted_factors
from schemas.base import TensorRef
from schemas.digests import Digest, blob_digest

BASE = blob_digest(b"base")
PLACES = 6
LIKE_A_DIGEST = f'","tensor":"{BASE}"'
words = st.text(min_size=1, max_size=40) | st.just(LIKE_A_DIGEST)
modules = st.lists(
    st.text(st.characters(min_codepoint=0x21, max_codepoint=0x7E), min_size=1, max_size=40) | st.just(LIKE_A_DIGEST),
    min_size=2,
    max_size=2,
    unique=True,
)
digests = st.lists(st.binary(max_size=4).map(blob_digest), min_size=PLACES, max_size=PLACES)
"""Often the same digest in several places."""


def written(names: list[str], word: str, alpha: float, tensors: list[Digest]) -> bytes:
    """An adapter of two factors, a magnitude and a replacement, by digests in the order of its canonical bytes."""
    first, second = sorted(names)
    b, c, d, e, f, g = tensors
    factors = [factor(first, alpha, b, c, {"magnitude": ref(d, 4)}), factor(second, alpha, e, f, {})]
    return AdapterManifest(
        base=BASE,
        factors=sorted_factors(factors),
        family="dora",
        full_replacements=(FullReplacement(name=word, value=ref(g, 4)),),
        training={"rate_ratio": word},
    ).canonical()


def factor(module: str, alpha: float, a: Digest, b: Digest, extra: dict[str, TensorRef]) -> FactorManifest:
    """A factor of rank 2 on a module."""
    scale = make_scale(alpha, "alpha_over_r", 2)
    return FactorManifest(
        base=BASE, module=module, a=ref(a, 2, 4), b=ref(b, 4, 2), rank=2, scale=scale, extra=extra, source="dora"
    )


def ref(digest: Digest, *shape: int) -> TensorRef:
    """A tensor by content."""
    return TensorRef(tensor=digest, dtype="F32", shape=shape)


@given(modules, words, st.floats(1e-8, 1e8), digests, digests)
def test_an_outline_with_other_digests_is_the_manifest_with_them(
    names: list[str], word: str, alpha: float, some: list[Digest], others: list[Digest]
) -> None:
    entries = [TensorEntry(str(place), "F32", (2, 4), 0, 32) for place in range(PLACES)]
    outline = Outline.of(written(names, word, alpha, some), entries, some)
    assert outline.filled(some) == written(names, word, alpha, some)
    assert outline.filled(others) == written(names, word, alpha, others)
