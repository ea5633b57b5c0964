"""The base of every manifest and spec: frozen, strict, no unknown fields, canonical bytes and digest."""

from __future__ import annotations

import re
from functools import cached_property
from typing import Annotated, ClassVar, Final, Literal, Self, TypeVar

from blake3 import blake3
from pydantic import BaseModel, ConfigDict, Field, StringConstraints, ValidationError

from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.digests import Digest, manifest_digest
from schemas.errors import DigestMismatchError, Problem, RefusedError

NONE: Final = "none"
NOT_VERIFIED: Final = "not_verified"
UNION_TAG: Final = "union:"
"""Begins the tags that tell apart what one field may hold; they are no step of a path."""
NoneLiteral = Literal["none"]
NotVerified = Literal["not_verified"]

Rank = Annotated[int, Field(ge=1, le=2**31)]
Count = Annotated[int, Field(ge=0, le=2**53 - 1)]
Finite = Annotated[float, Field(allow_inf_nan=False)]
Identifier = Annotated[str, StringConstraints(min_length=1, max_length=256)]
ModuleName = Annotated[str, StringConstraints(min_length=1, max_length=512, pattern=r"^[\x21-\x7e]+$")]
Key = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_]{0,63}$")]


M = TypeVar("M", bound=BaseModel)
_DIGEST_VALUE: Final = re.compile(rb':"blake3:[0-9a-f]{64}"')
"""No string holds it: a quote in one is escaped."""
_NOT_CANONICAL: Final = Problem(
    code="NOT_CANONICAL",
    expected="canonical bytes with every field present",
    observed="the same manifest written another way",
    hint="Restore the manifest from a backup.",
)
Form = tuple[str, bytes]
_FORMS: Final = 256
_canonical_forms: set[Form] = set()
"""Kinds and hashes of bytes without the digests that are values, once some were found canonical. Other digests in the
same places change nothing about that, and to write a manifest of a large model takes as long as to read it."""


class Record(BaseModel):
    """A frozen, strict value inside a manifest: unknown fields are refused, lists arrive as tuples, NaN never."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)

    def document(self) -> JsonObject:
        """The JSON document: every field present, absent as null."""
        return self.model_dump(mode="json", by_alias=True)


class Manifest(Record):
    """An immutable, content-addressed document. Subclasses fix `kind`; `schema: 1` is part of the hashed bytes."""

    KIND: ClassVar[str]
    schema_: Literal[1] = Field(default=1, alias="schema")

    def canonical(self) -> bytes:
        """The exact bytes that are hashed and stored."""
        return self._bytes

    @cached_property
    def _bytes(self) -> bytes:
        # Written once: a manifest of a large model takes a tenth of a second, and is asked for its digest many times.
        return canonical_bytes(self.document())

    @property
    def digest(self) -> Digest:
        """BLAKE3 of the canonical bytes under the kind's own context."""
        return self._digest

    @cached_property
    def _digest(self) -> Digest:
        return manifest_digest(self.KIND, self._bytes)

    def __copy__(self) -> Self:
        copied = super().__copy__()
        # `model_copy` changes fields of the copy, whose bytes are then others.
        copied.__dict__.pop("_bytes", None)
        copied.__dict__.pop("_digest", None)
        return copied

    @classmethod
    def parse(cls, data: bytes) -> Self:
        """Read stored bytes back: ``parse(m.canonical()) == m``.

        Raises:
            DigestMismatchError: `NOT_CANONICAL`; written another way or without fields that have defaults, the same
                manifest would have a second digest.
            RefusedError: `MANIFEST_INVALID`, one problem a field.
        """
        manifest = _read(cls, data, "MANIFEST_INVALID")
        form = (cls.KIND, blake3(_DIGEST_VALUE.sub(b"", data)).digest())
        if form in _canonical_forms:
            manifest.__dict__["_bytes"] = data
        elif manifest.canonical() == data:
            _remember(form)
        else:
            raise DigestMismatchError(_NOT_CANONICAL)
        return manifest


def _remember(form: Form) -> None:
    if len(_canonical_forms) >= _FORMS:
        _canonical_forms.clear()
    _canonical_forms.add(form)


def validate(model: type[M], document: JsonValue, code: str = "MANIFEST_INVALID") -> M:
    """Validate a parsed document, turning pydantic's errors into located problems."""
    return _read(model, canonical_bytes(document), code)


def _read(model: type[M], data: bytes, code: str) -> M:
    try:
        return model.model_validate_json(data)
    except ValidationError as error:
        raise RefusedError(*problems_of(error, code)) from error


def problems_of(error: ValidationError, code: str) -> tuple[Problem, ...]:
    """One problem for each validation error, with its path."""
    found = []
    for item in error.errors(include_url=False):
        path = tuple(step for step in item["loc"] if not str(step).startswith(UNION_TAG))
        expected, observed, hint = item["msg"], repr(item["input"])[:120], "Correct this field."
        if item["type"] == "missing":
            expected, observed, hint = "this field", "none", "Write it."
        elif item["type"] == "extra_forbidden":
            expected, hint = "no field of this name", "Remove it, or correct its name."
        found.append(Problem(code=code, path=path, expected=expected, observed=observed, hint=hint))
    return tuple(found)
