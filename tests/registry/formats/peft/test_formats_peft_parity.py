"""What PEFT 0.21 saves, read: merged by the manifest's conventions, the weights are those of PEFT's own merge."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from registry.formats import read_adapter, read_base
from registry.formats.base.naming import loaded_name
from schemas.base import TensorRef
from tests.registry.formats.peft.rebuild import merged
from tests.registry.formats.producers.make_peft import CASES, make

pytestmark = [
    pytest.mark.filterwarnings("ignore::UserWarning"),
    # AdaLoRA's patterns are no module patterns, and PEFT 0.21 looks for them all the same.
    pytest.mark.filterwarnings("ignore:The following rank_pattern keys did not match:RuntimeWarning"),
    # PEFT 0.21 asks transformers 5.24 under the older name.
    pytest.mark.filterwarnings("ignore:`is_gradient_checkpointing` is deprecated:FutureWarning"),
]
DTYPES: dict[str, Any] = {"F32": "<f4", "F64": "<f8", "I64": "<i8"}


@pytest.mark.parametrize("name", CASES)
def test_the_merge_of_the_manifest_is_that_of_peft(tmp_path: Path, name: str) -> None:
    case = CASES[name]
    made = make(case, tmp_path)
    scratch = tmp_path / "scratch"
    scratch.mkdir()
    reading = read_adapter(made.adapter, read_base(made.base).manifest, scratch=scratch)
    places = {place.tensor: place for place in reading.locations}
    files = {file.digests.digest: reading.made.get(file.path, made.adapter / file.path) for file in reading.files}

    def read(ref: TensorRef) -> NDArray[Any]:
        place = places[ref.tensor]
        data = files[place.file].read_bytes()[place.offset : place.offset + place.length]
        return np.frombuffer(data, DTYPES[ref.dtype]).reshape(ref.shape)

    prefix = "bert." if name == "bert-head-model" else ""

    def loaded(stored: str) -> str:
        inner = loaded_name(case.model_type, stored)
        return f"{prefix}{inner}" if not inner.startswith("classifier") else inner

    ours = merged(reading.manifest, read, made.before, loaded)
    changed = {key for key, value in made.after.items() if not np.array_equal(value, made.before[key])}
    assert changed
    assert changed <= ours.keys()
    for key, value in ours.items():
        assert np.abs(value - made.after[key]).max() <= 1e-6 * max(1.0, np.abs(made.after[key]).max()), key
