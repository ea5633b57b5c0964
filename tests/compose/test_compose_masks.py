"""The mask stream is what its one-sentence description says, on any tile and in any order."""

from __future__ import annotations

from math import floor

import numpy as np
import pytest
import rfc8785
from blake3 import blake3
from hypothesis import given, settings
from hypothesis import strategies as st

from compose.masks import MaskRole, draw_mask
from tests.compose.building import digest_of

ADAPTER = digest_of("one")


def described(seed: str, adapter: str, module: str, role: str, q: float, count: int) -> list[bool]:
    """One number at a time: element i keeps iff u32 LE number i of the stream is below floor(q 2^32)."""
    key = rfc8785.dumps([seed, adapter, module, role])
    stream = blake3(key, derive_key_context="adapter-registry v1 mask").digest(length=4 * count)
    limit = floor(q * 2**32)
    return [int.from_bytes(stream[4 * i : 4 * i + 4], "little") < limit for i in range(count)]


ROLES: tuple[MaskRole, ...] = ("delta", "a", "b")


@settings(max_examples=50, deadline=None)
@given(st.integers(1, 300), st.floats(1e-6, 1.0, exclude_min=True), st.sampled_from(ROLES))
def test_a_mask_is_the_described_stream(count: int, q: float, role: MaskRole) -> None:
    mask = draw_mask("7", ADAPTER, "layer.0", role, q, count)
    expected = described("7", ADAPTER, "layer.0", role, q, count)
    assert mask.between(0, count).tolist() == expected
    assert mask.retained == sum(expected)
    ref = mask.ref(ADAPTER, "delta")
    packed = np.packbits(np.array(expected), bitorder="little").tobytes()
    assert (ref.mask, ref.retained) == ("blake3:" + blake3(packed).hexdigest(), sum(expected))


def test_any_part_of_a_mask_is_the_same_part_of_the_whole_also_beyond_one_chunk() -> None:
    count = (1 << 20) + 37
    mask = draw_mask("7", ADAPTER, "m", "delta", 0.25, count)
    whole = mask.between(0, count)
    assert whole[-50:].tolist() == described("7", ADAPTER, "m", "delta", 0.25, count)[-50:]
    assert mask.between(8, 29).tolist() == whole[8:29].tolist()
    assert mask.retained / count == pytest.approx(0.25, abs=0.002)


def test_density_one_keeps_all_and_a_vanishing_one_keeps_none() -> None:
    assert draw_mask("7", ADAPTER, "m", "a", 1.0, 11).between(0, 11).all()
    assert draw_mask("7", ADAPTER, "m", "a", 1e-12, 500).retained == 0


def test_seed_adapter_module_and_role_each_draw_another_mask() -> None:
    drawn = (
        draw_mask("7", ADAPTER, "m", "a", 0.5, 256),
        draw_mask("8", ADAPTER, "m", "a", 0.5, 256),
        draw_mask("7", digest_of("two"), "m", "a", 0.5, 256),
        draw_mask("7", ADAPTER, "n", "a", 0.5, 256),
        draw_mask("7", ADAPTER, "m", "b", 0.5, 256),
    )
    assert len({mask.packed.tobytes() for mask in drawn}) == 5
