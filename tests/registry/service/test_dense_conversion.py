"""A dense release is a conversion: recorded when it is handed out, held as a base when it is asked for by name."""

from __future__ import annotations

import json
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, cast

import numpy as np
import pytest
from safetensors.numpy import load_file

from registry.errors import RefusedError, UsageProblemError
from registry.formats import read_base
from registry.service import add, export, look, publish, sync, verify
from registry.service.composer import Composer, ReleasedWeight, ReleaseOrder
from registry.service.context import Context
from registry.service.convert import convert
from registry.service.export import Form
from registry.service.sync import Stored
from registry.service.wishes import Wish
from tests.support import stored, tiny
from tests.support.stored import Factor, random_factor

QUERY, VALUE = tiny.MODULES[0], tiny.MODULES[1]
DENSE = Form("tiny", "dense")


@pytest.fixture
def registry(context: Context, tiny_base: Path) -> Context:
    """A registry with the tiny base and an adapter of it."""
    add.add_base(context, tiny_base, "tiny")
    stored.put(context, "tiny", "one", {QUERY: random_factor(1), VALUE: random_factor(2)})
    return context


def read(directory: Path, name: str) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((directory / name).read_text(encoding="utf-8"))
    return loaded


def test_what_is_handed_out_is_recorded_as_a_conversion_to_a_base(registry: Context, tmp_path: Path) -> None:
    made = export.export(registry, "one", tmp_path / "out", DENSE)
    said, card = read(tmp_path / "out", "release.json"), read(tmp_path / "out", "registry.json")
    assert made.conversion is not None
    assert made.conversion == said["conversion"] == card["conversion"]
    shown = look.show(registry, made.conversion)
    adapter, base = look.show(registry, "one").digest, look.show(registry, "tiny").digest
    assert {key: shown.manifest[key] for key in ("kind", "rule", "parent", "base", "output")} == {
        "kind": "conversion", "rule": "dense", "parent": adapter, "base": base, "output": said["output"],
    }  # fmt: skip
    assert shown.measurement == said["measurement"]
    # The released model is what reading the directory as a base gives.
    assert said["output"] == read_base(tmp_path / "out").manifest.digest
    assert look.show(registry, said["output"]).evidence == "content"
    up = look.line(registry, said["output"], "up")
    assert {(node.digest, node.depth) for node in up.nodes} == {
        (said["output"], 0), (made.conversion, 1), (adapter, 2), (base, 2),
    }  # fmt: skip


def test_the_same_release_is_recorded_once(registry: Context, tmp_path: Path) -> None:
    first = export.export(registry, "one", tmp_path / "first", DENSE)
    before = verify.verify(registry).audit_events
    second = export.export(registry, "one", tmp_path / "second", DENSE)
    assert (second.conversion, verify.verify(registry).audit_events) == (first.conversion, before)
    assert read(tmp_path / "first", "release.json") == read(tmp_path / "second", "release.json")


def test_a_synced_channel_names_the_record_and_is_not_written_again(registry: Context, tmp_path: Path) -> None:
    publish.publish(registry, "bot", ["one"])
    assert sync.sync(Stored(registry), "bot", tmp_path / "served", DENSE).changed
    assert not sync.sync(Stored(registry), "bot", tmp_path / "served", DENSE).changed
    card = read(tmp_path / "served" / "live", "registry.json")
    assert look.show(registry, card["conversion"]).manifest["rule"] == "dense"
    again = export.ensure(registry, "channel:bot", tmp_path / "served", DENSE)
    assert (again.conversion, again.directory) == (card["conversion"], str((tmp_path / "served" / "live").resolve()))


def test_a_converted_model_is_a_base_whose_files_are_held(context: Context, tmp_path: Path) -> None:
    origin = tiny.write_base(tmp_path / "base", shards=2)
    add.add_base(context, origin, "tiny")
    stored.put(context, "tiny", "one", {QUERY: random_factor(1)})
    export.export(context, "one", tmp_path / "out", DENSE)
    made = convert(context, "one", Wish("dense", "merged"))
    assert (made.name, made.version, look.show(context, "merged").kind) == ("merged", 1, "base")
    held = {file.path: file.blob for file in look.show(context, "merged").files}
    assert held.keys() == {path.name for path in origin.iterdir()}
    for path, blob in held.items():
        content = (tmp_path / "out" / path).read_bytes()
        assert context.store.read(blob, 0, len(content)) == content
    assert verify.verify(context, deep=True).faults == ()
    for file in origin.iterdir():
        file.unlink()
    # Its own bytes serve a release of an adapter trained on it; the first base is gone.
    stored.put(context, "merged", "two", {QUERY: random_factor(3)})
    export.export(context, "two", tmp_path / "next", DENSE)
    weight = f"{QUERY}.weight"
    found = read_weights(tmp_path / "next")[weight].astype(np.float64)
    np.testing.assert_allclose(found, read_weights(tmp_path / "out")[weight] + random_factor(3).delta, rtol=1e-6)


def read_weights(directory: Path) -> dict[str, Any]:
    return {name: value for file in directory.glob("model*.safetensors") for name, value in load_file(file).items()}


def test_the_same_conversion_is_computed_once(registry: Context) -> None:
    first = convert(registry, "one", Wish("dense"))
    second = convert(registry, "one", Wish("dense", "merged"))
    assert (first.created, second.created) == (True, False)
    assert (second.conversion, second.output, second.measurement) == (first.conversion, first.output, first.measurement)
    assert convert(registry, "one", Wish("dense", "merged")).version == second.version == 1


def test_dora_is_converted_to_rows_of_its_magnitude(registry: Context) -> None:
    magnitude = np.arange(1, tiny.HIDDEN + 1, dtype=np.float32)
    factor = random_factor(1)
    dora = Factor(factor.a, factor.b, factor.scale, {"magnitude": magnitude})
    stored.put(registry, "tiny", "dora", {QUERY: dora}, family="dora")
    convert(registry, "dora", Wish("dense", "rows"))
    (held,) = [file for file in look.show(registry, "rows").files if file.path.endswith(".safetensors")]
    found = load_file(registry.store.local_path(held.blob))[f"{QUERY}.weight"]
    np.testing.assert_allclose(np.linalg.norm(found, axis=1), magnitude, rtol=1e-6)


def test_a_release_that_changes_no_number_has_no_record(registry: Context, tmp_path: Path) -> None:
    zero = random_factor(1)
    stored.put(registry, "tiny", "zero", {QUERY: Factor(zero.a, np.zeros_like(zero.b))})
    assert export.export(registry, "zero", tmp_path / "out", DENSE).conversion is None
    assert read(tmp_path / "out", "release.json")["conversion"] is None
    made = convert(registry, "zero", Wish("dense", "same"))
    assert (made.conversion, made.output) == (None, look.show(registry, "tiny").digest)
    assert look.show(registry, "same").digest == made.output


def test_what_no_weight_can_hold_is_refused_and_audited(registry: Context) -> None:
    stored.put(registry, "tiny", "expert", {QUERY: random_factor(1, expert=0)})
    before = verify.verify(registry).audit_events
    with pytest.raises(RefusedError, match="NO_DENSE_RELEASE"):
        convert(registry, "expert", Wish("dense", "merged"))
    assert verify.verify(registry).audit_events == before + 1


def test_the_record_of_a_release_is_no_adapter(registry: Context, tmp_path: Path) -> None:
    record = convert(registry, "one", Wish("dense")).conversion
    assert record is not None
    with pytest.raises(UsageProblemError, match="dense release"):
        export.export(registry, record, tmp_path / "out", Form("tiny"))
    with pytest.raises(UsageProblemError, match="NOT_AN_ADAPTER"):
        publish.publish(registry, "bot", [record])


@dataclass(frozen=True)
class Skewed:
    """A composer that says of every released weight another digest, and norms times a factor."""

    composer: Composer
    factor: float

    def release(self, order: ReleaseOrder) -> tuple[ReleasedWeight, ...]:
        return tuple(
            replace(
                item,
                tensor=item.tensor.model_copy(update={"tensor": item.tensor.tensor[:-1] + "0"}),
                change=item.change * self.factor,
            )
            for item in self.composer.release(order)
        )

    def __getattr__(self, name: str) -> Any:
        return getattr(self.composer, name)


def test_recomputation_forgives_rounding_and_names_another_delta(registry: Context, tmp_path: Path) -> None:
    export.export(registry, "one", tmp_path / "out", DENSE)
    assert verify.verify(registry, recompute=True).faults == ()
    near = replace(registry, composer=cast(Composer, Skewed(registry.composer, 1 + 1e-8)))
    assert verify.verify(near, recompute=True).faults == ()
    far = replace(registry, composer=cast(Composer, Skewed(registry.composer, 1.01)))
    (fault,) = verify.verify(far, recompute=True).faults
    assert (fault.code, "other norms" in fault.observed) == ("RECOMPUTE_DIFFERS", True)


def test_recomputation_without_the_base_says_so(context: Context, tmp_path: Path) -> None:
    base = tiny.write_base(tmp_path / "base")
    add.add_base(context, base, "tiny")
    stored.put(context, "tiny", "one", {QUERY: random_factor(1)})
    export.export(context, "one", tmp_path / "out", DENSE)
    (base / "model.safetensors").unlink()
    assert [fault.code for fault in verify.verify(context, recompute=True).faults] == ["BASE_BYTES_UNAVAILABLE"]
