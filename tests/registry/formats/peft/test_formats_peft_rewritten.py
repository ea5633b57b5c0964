"""What PEFT 0.21 saves, read and written again: PEFT merges the written directory to the same weights."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from registry.errors import RefusedError
from registry.formats import AdapterReading, read_adapter, read_base, write_peft
from schemas.base import BaseManifest, TensorRef
from tests.registry.formats.producers.make_peft import CASES, Made, _merged, make

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    # AdaLoRA's patterns are no module patterns, and PEFT 0.21 looks for them all the same.
    pytest.mark.filterwarnings("ignore:The following rank_pattern keys did not match:RuntimeWarning"),
    # PEFT 0.21 asks transformers 5.24 under the older name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
INEXPRESSIBLE = {
    "pissa-native": "payload",
    "pissa-native-rslora": "payload",
    "olora-native": "payload",
    "pissa-dora": "payload",
    "kasa": "payload",
}
"""Cases that PEFT would load as another function, and the last step of the path of what stands in the way."""


def reading_of(made: Made, scratch: Path) -> tuple[AdapterReading, BaseManifest, Callable[[TensorRef], bytes]]:
    """An adapter of a case, its base, and its bytes by tensor."""
    scratch.mkdir()
    base = read_base(made.base).manifest
    reading = read_adapter(made.adapter, base, scratch=scratch)
    places = {place.tensor: place for place in reading.locations}
    files = {file.digests.digest: reading.made.get(file.path, made.adapter / file.path) for file in reading.files}

    def read_tensor(ref: TensorRef) -> bytes:
        place = places[ref.tensor]
        return files[place.file].read_bytes()[place.offset : place.offset + place.length]

    return reading, base, read_tensor


@pytest.mark.parametrize("name", [name for name in CASES if name not in INEXPRESSIBLE])
def test_peft_merges_a_written_adapter_to_the_same_weights(tmp_path: Path, name: str) -> None:
    made = make(CASES[name], tmp_path)
    reading, base, read_tensor = reading_of(made, tmp_path / "scratch")
    out = tmp_path / "out"
    write_peft(out, reading.manifest, base, read_tensor, base_name=str(made.base))
    _, after = _merged(CASES[name], made.base, out)
    assert after.keys() == made.after.keys()
    for key, value in made.after.items():
        np.testing.assert_allclose(after[key], value, rtol=1e-6, atol=1e-7, err_msg=key)
    again = read_adapter(out, base, scratch=scratch_of(tmp_path)).manifest
    assert again.digest == reading.manifest.digest


def scratch_of(folder: Path) -> Path:
    """Another empty scratch folder."""
    (folder / "again").mkdir()
    return folder / "again"


@pytest.mark.parametrize("name", INEXPRESSIBLE)
def test_what_peft_would_load_as_another_function_is_refused_by_name(tmp_path: Path, name: str) -> None:
    made = make(CASES[name], tmp_path)
    reading, base, read_tensor = reading_of(made, tmp_path / "scratch")
    with pytest.raises(RefusedError, match="ADAPTER_NOT_PEFT") as refused:
        write_peft(tmp_path / "out", reading.manifest, base, read_tensor, base_name="base")
    assert INEXPRESSIBLE[name] in {problem.path[-1] for problem in refused.value.problems}
    assert not (tmp_path / "out").exists()
