"""Registering by one multipart POST, so that curl is enough."""

from __future__ import annotations

import re
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Final

from fastapi import APIRouter, File, Form, Response, UploadFile

from registry.api.auth import Registering
from registry.errors import Problem, UsageProblemError
from registry.service import add
from registry.service.results import Added

router = APIRouter(prefix="/v1", tags=["registration"])
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
Files = Annotated[list[UploadFile], File(description="The files of the directory, each under its own name.")]
NameField = Annotated[str, Form(description="Name to register it under.")]


@router.post("/bases", status_code=201)
def post_base(context: Registering, response: Response, name: NameField, files: Files) -> Added:
    """Register a base; its files are kept in the store. 200 when it is already held."""
    with _directory(files) as directory:
        return _answer(response, add.add_base(context, directory, name, store=True))


@router.post("/adapters", status_code=201)
def post_adapter(
    context: Registering,
    response: Response,
    name: NameField,
    base: Annotated[str, Form(description="The base it was trained on.")],
    files: Files,
) -> Added:
    """Register an adapter against its base. 200 when it is already held."""
    with _directory(files) as directory:
        return _answer(response, add.add_adapter(context, directory, base, name))


@contextmanager
def _directory(files: list[UploadFile]) -> Iterator[Path]:
    """The uploaded files as a directory; a name that is not a plain file name is refused."""
    with tempfile.TemporaryDirectory(prefix="registry-upload-") as folder:
        for item in files:
            with (Path(folder) / _plain_name(item.filename, Path(folder))).open("xb") as target:
                shutil.copyfileobj(item.file, target, 1 << 20)
        yield Path(folder)


def _plain_name(name: str | None, folder: Path) -> str:
    if name is None or not _FILE_NAME.fullmatch(name):
        raise UsageProblemError(_problem("FILE_NAME_INVALID", "a plain file name", repr(name)))
    if (folder / name).exists():
        raise UsageProblemError(_problem("FILE_GIVEN_TWICE", "each file once", name))
    return name


def _answer(response: Response, added: Added) -> Added:
    response.headers["ETag"] = f'"{added.digest}"'
    if not added.created:
        response.status_code = 200
    return added


def _problem(code: str, expected: str, observed: str) -> Problem:
    return Problem(code=code, path=("files",), expected=expected, observed=observed, hint="Send the directory's files.")
