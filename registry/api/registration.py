"""Registering bases and adapters: by the blobs of their files, or by one multipart POST, so that curl is enough."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, Final, TypeVar

from fastapi import APIRouter, Depends, Request, Response
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel, ValidationError
from starlette.datastructures import FormData, UploadFile

from registry.api.answers import registered
from registry.api.auth import Guarded, Registering
from registry.api.bodies import AdapterFields, AdapterIn, BaseFields, BaseIn, DeclaredBaseIn, InspectionIn
from registry.errors import Problem, UsageProblemError
from registry.formats import Note
from registry.service import add, assembled, declare, inspect
from registry.service.context import Context
from registry.service.inspected import Inspected
from registry.service.results import Added

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["registration"])
M = TypeVar("M", bound=BaseModel)
_FILE_NAME: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,254}")
_FORM: Final = "multipart/form-data"
_JSON: Final = "application/json"


async def _sent(request: Request) -> AsyncIterator[object]:
    """The form or the document that a request carries."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip().lower()
    if kind == _FORM:
        async with request.form() as form:
            yield form
    elif kind == _JSON:
        yield _parsed(await request.body())
    else:
        raise UsageProblemError(_problem("REQUEST_INVALID", f"a body of type {_JSON} or {_FORM}", kind or "none"))


Sent = Annotated[object, Depends(_sent)]


def _either(fields: type[BaseModel], whole: type[BaseModel]) -> dict[str, Any]:
    """The description of a body that is a form with files or a document with their digests."""
    form = fields.model_json_schema()
    form["properties"]["files"] = {
        "type": "array",
        "minItems": 1,
        "items": {"type": "string", "format": "binary"},
        "description": "The files of the directory, each under its own name.",
    }
    form["required"] = [*form["required"], "files"]
    schemas = {_FORM: form, _JSON: whole.model_json_schema()}
    return {"requestBody": {"required": True, "content": {kind: {"schema": it} for kind, it in schemas.items()}}}


@router.post("/adapters", status_code=201, openapi_extra=_either(AdapterFields, AdapterIn))
def post_adapter(context: Registering, response: Response, sent: Sent) -> Added:
    """Register an adapter against its base. 200 when it is already held, 409 naming each file that is not uploaded."""
    with _opened(context, sent, AdapterFields, AdapterIn) as (fields, directory):
        return registered(
            response, add.add_adapter(context, directory, fields.base, fields.name, origin=_origin(fields))
        )


@router.post("/bases", status_code=201, openapi_extra=_either(BaseFields, BaseIn))
def post_base(context: Registering, response: Response, sent: Sent) -> Added:
    """Register a base whose files are kept in the store. 200 when it is already held, 409 naming each missing file."""
    with _opened(context, sent, BaseFields, BaseIn) as (fields, directory):
        added = add.add_base(
            context,
            directory,
            fields.name,
            store=True,
            level=fields.evidence,
            contracts=fields.contracts,
            origin=_origin(fields),
        )
        return registered(response, added)


@router.post("/bases/declared", status_code=201)
def post_declared_base(context: Registering, response: Response, body: DeclaredBaseIn) -> Added:
    """Register a base by what its owner says of it; its evidence is `declared`. 200 when it is already held."""
    added = declare.declare_base(context, body.name, body.base, body.files, body.contracts)
    return registered(response, added)


@router.post("/inspections")
def post_inspection(context: Registering, body: InspectionIn) -> Inspected:
    """What a directory is, without registering it: its files were uploaded before; `directory` is empty."""
    with assembled.directory_of(context, body.files) as directory:
        return inspect.inspect(context, directory, body.base).model_copy(update={"directory": ""})


def _origin(fields: BaseModel) -> Mapping[str, Note] | None:
    return fields.origin if isinstance(fields, AdapterIn | BaseIn) else None


@contextmanager
def _opened(context: Context, sent: object, of_form: type[M], of_document: type[M]) -> Iterator[tuple[M, Path]]:
    """The fields of a registration and its files as a directory."""
    if isinstance(sent, FormData):
        files = [item for name, item in sent.multi_items() if name == "files" and isinstance(item, UploadFile)]
        fields = {name: item for name, item in sent.multi_items() if item not in files}
        read = _validated(of_form, fields)
        with _written(context, files) as directory:
            yield read, directory
    else:
        body = _validated(of_document, sent)
        assert isinstance(body, AdapterIn | BaseIn), "only these name files"
        with assembled.directory_of(context, body.files) as directory:
            yield body, directory


@contextmanager
def _written(context: Context, files: list[UploadFile]) -> Iterator[Path]:
    """The files of a form as a directory; a name that is not a plain file name is refused."""
    if not files:
        raise UsageProblemError(_problem("REQUEST_INVALID", "at least one file", "none"))
    with context.store.scratch.folder() as folder:
        for item in files:
            with (folder / _plain_name(item.filename, folder)).open("xb") as target:
                shutil.copyfileobj(item.file, target, 1 << 20)
        yield folder


def _plain_name(name: str | None, folder: Path) -> str:
    if name is None or not _FILE_NAME.fullmatch(name):
        raise UsageProblemError(_problem("FILE_NAME_INVALID", "a plain file name", repr(name)))
    if (folder / name).exists():
        raise UsageProblemError(_problem("FILE_GIVEN_TWICE", "each file once", name))
    return name


def _parsed(body: bytes) -> object:
    try:
        parsed: object = json.loads(body)
    except (ValueError, RecursionError) as error:
        raise UsageProblemError(_problem("REQUEST_INVALID", "a JSON document", str(error)[:120])) from error
    return parsed


def _validated(model: type[M], document: object) -> M:
    try:
        return model.model_validate(document)
    except ValidationError as error:
        found = [{**item, "loc": ("body", *item["loc"])} for item in error.errors(include_url=False)]
        raise RequestValidationError(found) from error


def _problem(code: str, expected: str, observed: str) -> Problem:
    return Problem(code=code, path=("files",), expected=expected, observed=observed, hint="Send the directory's files.")
