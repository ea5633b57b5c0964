"""Repositories of a hub: a commit, data files only, bounded, and checked against what was announced."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from registry.errors import DigestMismatchError, NotFoundError, TooLargeError, UnavailableError, UsageProblemError
from registry.formats import read_base
from registry.formats.hub import HubRef, fetch, parse_hub, place_of
from tests.registry.formats.builders import write_base
from tests.support.hub import Hub, Repository, running_hub

REF = HubRef("owner/tiny", None)


def files(directory: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in directory.iterdir() if path.is_file()}


@pytest.fixture
def hub(tmp_path: Path) -> Iterator[Hub]:
    stored = files(write_base(tmp_path / "made")) | {
        "README.md": b"# tiny",
        "pytorch_model.bin": b"\x80\x02",
        "modeling.py": b"raise SystemExit",
        "onnx/model.onnx": b"onnx",
        "onnx/config.json": b"{}",
        "adapter_model.safetensors": b"not a base",
    }
    with running_hub({"owner/tiny": Repository(stored, branches=("main", "v1.0"))}) as found:
        yield found


def test_a_repository_is_the_base_its_directory_is(hub: Hub, tmp_path: Path) -> None:
    commit = fetch(REF, tmp_path / "got", "base", endpoint=hub.url)
    assert commit == "a" * 40
    assert read_base(tmp_path / "got").manifest == read_base(tmp_path / "made").manifest


def test_only_data_files_of_the_top_folder_are_asked_for(hub: Hub, tmp_path: Path) -> None:
    fetch(REF, tmp_path / "got", "base", endpoint=hub.url)
    assert set(hub.fetched) == {"config.json", "model.safetensors", "README.md"}
    hub.fetched.clear()
    fetch(REF, tmp_path / "less", "base", weights=False, endpoint=hub.url)
    assert set(hub.fetched) == {"config.json", "README.md"}
    hub.fetched.clear()
    fetch(REF, tmp_path / "adapter", "adapter", endpoint=hub.url)
    assert "adapter_model.safetensors" in hub.fetched
    assert "model.safetensors" not in hub.fetched


def test_a_branch_a_tag_and_a_commit_lead_to_one_commit(hub: Hub, tmp_path: Path) -> None:
    for revision in (None, "main", "v1.0", "a" * 40):
        got = tmp_path / str(revision)
        assert fetch(HubRef("owner/tiny", revision), got, "base", weights=False, endpoint=hub.url) == "a" * 40
    assert HubRef("owner/tiny", "v1.0").origin("b" * 40) == {
        "source": "hub",
        "repository": "owner/tiny",
        "revision": "v1.0",
        "commit": "b" * 40,
    }


@pytest.mark.parametrize("ref", [HubRef("owner/none", None), HubRef("owner/tiny", "v2.0")])
def test_what_the_hub_does_not_have_is_not_found(hub: Hub, tmp_path: Path, ref: HubRef) -> None:
    with pytest.raises(NotFoundError) as caught:
        fetch(ref, tmp_path / "got", "base", endpoint=hub.url)
    assert caught.value.code == "HUB_NOT_FOUND"


def test_sizes_are_bounded_before_a_byte_is_fetched(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories["owner/tiny"]
    cases: list[dict[str, int | None]] = [{"size": 2**41}, {"size": None}]
    for announced in cases:
        repository.announced = {"model.safetensors": announced}
        with pytest.raises(TooLargeError) as caught:
            fetch(REF, tmp_path / "got", "base", endpoint=hub.url)
        assert caught.value.code == "HUB_TOO_LARGE"
    repository.announced = {"config.json": {"size": 2**29}}
    with pytest.raises(TooLargeError):
        fetch(REF, tmp_path / "got", "base", endpoint=hub.url)
    repository.announced = {}
    with pytest.raises(TooLargeError):
        fetch(REF, tmp_path / "got", "base", endpoint=hub.url, largest=1000)
    assert hub.fetched == []


def test_a_file_that_is_not_the_announced_one_is_refused(hub: Hub, tmp_path: Path) -> None:
    repository = hub.repositories["owner/tiny"]
    size = len(repository.files["model.safetensors"])
    other = {"sha256": "0" * 64, "size": size, "pointerSize": 1}
    cases: list[dict[str, Any]] = [{"lfs": other}, {"size": size - 1}]
    for number, announced in enumerate(cases):
        repository.announced = {"model.safetensors": announced}
        with pytest.raises(DigestMismatchError) as caught:
            fetch(REF, tmp_path / str(number), "base", endpoint=hub.url)
        assert caught.value.code == "HUB_FILE_DIFFERS"


def test_a_hub_that_names_no_commit_is_not_believed(hub: Hub, tmp_path: Path) -> None:
    hub.repositories["owner/tiny"].commit = "main"
    with pytest.raises(UnavailableError):
        fetch(REF, tmp_path / "got", "base", endpoint=hub.url)


def test_a_hub_that_does_not_answer_is_unavailable(tmp_path: Path) -> None:
    with running_hub({}) as gone:
        url = gone.url
    with pytest.raises(UnavailableError) as caught:
        fetch(REF, tmp_path / "got", "base", endpoint=url)
    assert caught.value.code == "HUB_UNAVAILABLE"


def test_hub_ids_are_parsed_and_everything_else_is_a_path() -> None:
    assert parse_hub("hub:owner/name") == HubRef("owner/name", None)
    assert parse_hub("hub:gpt2@refs/pr/1") == HubRef("gpt2", "refs/pr/1")
    assert parse_hub("models/tiny") is None
    assert place_of("hub:owner/name") == HubRef("owner/name", None)
    assert place_of("models/tiny") == place_of(Path("models/tiny")) == Path("models/tiny")
    for text in ("hub:", "hub:a/b/c", "hub:../x", "hub:a/b@", "hub:a/b@-x", "hub:a b", "hub:a/b@x..y"):
        with pytest.raises(UsageProblemError) as caught:
            parse_hub(text)
        assert caught.value.code == "HUB_ID_INVALID"
