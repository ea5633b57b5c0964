"""Nothing leads out of a directory, and no pickle comes in."""

from __future__ import annotations

import os
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.numpy import save_file

from registry.errors import ProblemError, RefusedError, UsageProblemError
from registry.formats import read_adapter, read_base
from registry.formats.directory import open_directory
from tests.registry.formats.builders import tiny_base, write_adapter, write_base, write_shards


def adapter_codes(directory: Path) -> set[str]:
    with pytest.raises(ProblemError) as caught:
        read_adapter(directory, tiny_base())
    return {problem.code for problem in caught.value.problems}


@pytest.mark.parametrize("name", ["adapter_model.safetensors", "adapter_config.json", "README.md"])
def test_a_symlink_is_refused_whatever_its_name(tmp_path: Path, name: str) -> None:
    directory = write_adapter(tmp_path / "a")
    (directory / name).unlink(missing_ok=True)
    (directory / name).symlink_to(write_adapter(tmp_path / "b") / "adapter_config.json")
    assert adapter_codes(directory) == {"SYMLINK_REFUSED"}


def test_a_pipe_is_refused_without_waiting_for_it(tmp_path: Path) -> None:
    directory = write_adapter(tmp_path)
    (directory / "adapter_model.safetensors").unlink()
    os.mkfifo(directory / "adapter_model.safetensors")
    assert adapter_codes(directory) == {"FILE_NOT_REGULAR"}


def test_a_file_swapped_for_a_link_after_the_check_is_not_followed(tmp_path: Path) -> None:
    path = write_adapter(tmp_path) / "adapter_config.json"
    directory = open_directory(tmp_path)
    path.rename(tmp_path / "elsewhere")
    path.symlink_to(tmp_path / "elsewhere")
    with pytest.raises(RefusedError) as caught:
        directory.read_file("adapter_config.json")
    assert caught.value.code == "FILE_UNREADABLE"


def test_a_missing_file_is_named(tmp_path: Path) -> None:
    directory = write_adapter(tmp_path)
    (directory / "adapter_model.safetensors").unlink()
    with pytest.raises(RefusedError) as caught:
        read_adapter(directory, tiny_base())
    assert caught.value.code == "FILE_MISSING"
    assert caught.value.problems[0].path == ("adapter_model.safetensors",)


def test_a_missing_directory_is_a_usage_error(tmp_path: Path) -> None:
    with pytest.raises(UsageProblemError) as caught:
        read_adapter(tmp_path / "absent", tiny_base())
    assert caught.value.code == "DIRECTORY_MISSING"


@pytest.mark.parametrize("name", ["adapter_model.bin", "optimizer.pt", "x.pth", "x.pkl", "x.ckpt"])
def test_a_pickle_by_name_is_refused(tmp_path: Path, name: str) -> None:
    directory = write_adapter(tmp_path)
    (directory / name).write_bytes(b"")
    assert adapter_codes(directory) == {"PICKLE_REFUSED"}


@pytest.mark.parametrize("as_zip", [True, False])
def test_a_pickle_under_a_safetensors_name_is_refused(tmp_path: Path, as_zip: bool) -> None:
    directory = write_adapter(tmp_path)
    path = directory / "adapter_model.safetensors"
    torch.save({"a": torch.zeros(2)}, path, _use_new_zipfile_serialization=as_zip)
    assert adapter_codes(directory) == {"PICKLE_REFUSED"}


def test_another_tensor_file_is_refused_by_name(tmp_path: Path) -> None:
    directory = write_adapter(tmp_path)
    save_file({"x": np.zeros(1)}, directory / "more.safetensors")
    assert adapter_codes(directory) == {"TENSOR_FILE_UNEXPECTED"}


def test_known_files_are_kept_and_unknown_ones_left_alone(tmp_path: Path) -> None:
    directory = write_adapter(tmp_path)
    (directory / "README.md").write_text("# card")
    (directory / "notes.txt").write_text("mine")
    (directory / "runs").mkdir()
    (directory / "runs" / "events.bin").write_bytes(b"x")
    reading = read_adapter(directory, tiny_base())
    assert [file.path for file in reading.files] == ["README.md", "adapter_config.json", "adapter_model.safetensors"]


@pytest.mark.parametrize("name", ["../out.safetensors", "/etc/out.safetensors", "a/b.safetensors", "..", "a\\b", ""])
def test_an_index_that_leaves_the_directory_is_refused(tmp_path: Path, name: str) -> None:
    directory = write_shards(tmp_path, {}, {"x": name})
    with pytest.raises(RefusedError) as caught:
        read_base(directory)
    assert caught.value.code == "PATH_OUTSIDE"


def test_a_base_of_pickles_alone_is_refused_and_beside_safetensors_not_read(tmp_path: Path) -> None:
    directory = write_base(tmp_path)
    (directory / "pytorch_model.bin").write_bytes(b"pickle")
    assert "pytorch_model.bin" not in {file.path for file in read_base(directory).files}
    (directory / "model.safetensors").unlink()
    with pytest.raises(RefusedError) as caught:
        read_base(directory)
    assert caught.value.code == "PICKLE_REFUSED"


@pytest.mark.parametrize(
    ("text", "code"),
    [
        ("[]", "JSON_NOT_OBJECT"),
        ("{", "JSON_INVALID"),
        ('{"r": 2, "r": 4}', "JSON_DUPLICATE_KEY"),
        ('{"r": 1e999}', "JSON_NOT_FINITE"),
        ('{"lora_alpha": ' + "9" * 5000 + "}", "JSON_INTEGER"),
    ],
)
def test_a_config_that_is_not_plain_json_is_refused_with_its_file(tmp_path: Path, text: str, code: str) -> None:
    directory = write_adapter(tmp_path)
    (directory / "adapter_config.json").write_text(text)
    with pytest.raises(RefusedError) as caught:
        read_adapter(directory, tiny_base())
    assert (caught.value.code, caught.value.problems[0].path[0]) == (code, "adapter_config.json")


def test_a_huge_config_is_refused_unread(tmp_path: Path) -> None:
    directory = write_adapter(tmp_path)
    with (directory / "adapter_config.json").open("wb") as stream:
        stream.truncate(2**33)
    assert adapter_codes(directory) == {"FILE_TOO_LARGE"}


def test_truncated_and_extended_tensor_files_are_refused(tmp_path: Path) -> None:
    path = write_adapter(tmp_path) / "adapter_model.safetensors"
    content = path.read_bytes()
    for changed, code in ((content[:-1], "FILE_TRUNCATED"), (content + b"\0", "TRAILING_BYTES")):
        path.write_bytes(changed)
        assert adapter_codes(tmp_path) == {code}
