"""Request bodies, each with an example that the description shows, and answers that no use case gives."""

from __future__ import annotations

from typing import Annotated, Any, Final, Literal, TypeVar

from fastapi import Body
from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

from registry.api.parameters import AliasText, NameText, RefText, Text, written
from registry.service.declare import DeclaredFile
from schemas.canonical import JsonObject
from schemas.digests import Digest
from schemas.model import Finite, Record
from schemas.publication import ChannelPolicy
from schemas.release import ReleaseSpec
from schemas.spec import CompositionSpec

T = TypeVar("T")
LONGEST_GRACE_S: Final = 10 * 365 * 86_400.0
_BLOB: Final = "blake3:a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"
_SHA: Final = "sha256:a1b2c3d4e5f60718293a4b5c6d7e8f90a1b2c3d4e5f60718293a4b5c6d7e8f90"


def tupled(value: object) -> object:
    """JSON arrays as tuples, which is what strict records take."""
    if isinstance(value, list):
        return tuple(tupled(item) for item in value)
    if isinstance(value, dict):
        return {key: tupled(item) for key, item in value.items()}
    return value


def example(value: JsonObject) -> ConfigDict:
    """A body with one example."""
    return ConfigDict(json_schema_extra={"examples": [value]})


Many = Annotated[tuple[T, ...], BeforeValidator(tupled)]
FileName = Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9_.][A-Za-z0-9._+ -]{0,199}$")]
AnyDigest = Annotated[str, StringConstraints(pattern=r"^(blake3|sha256):[0-9a-f]{64}$")]
Files = Annotated[
    dict[FileName, AnyDigest],
    Field(min_length=1, max_length=4096, description="Each file of the directory as a blob that was uploaded before."),
]
Reason = Annotated[str, Field(json_schema_extra=written("^[a-z][a-z0-9_-]{0,63}$", "release"))]
LabelKey = Annotated[str, StringConstraints(pattern=r"^[\x21-\x3c\x3e-\x7e]{1,256}$")]
Key = Annotated[str, StringConstraints(min_length=1, max_length=256, pattern=r"^[^\x00-\x1f\x7f]+$")]
Said = str | int | float | bool | tuple[str, ...] | None


Origin = Annotated[
    dict[Key, Said],
    BeforeValidator(tupled),
    Field(min_length=1, max_length=16, description="Where the caller fetched it from; becomes a statement."),
]


class PublishIn(Record):
    """What a new generation serves."""

    model_config = example({"refs": ["support-bot@2"], "reason": "release"})
    refs: Many[RefText] = Field(min_length=1, max_length=64)
    reason: Reason = "release"


class RollbackIn(Record):
    """Which generation to serve again; null for the one before the head."""

    model_config = example({"to": None, "reason": "rollback"})
    to: int | None = Field(default=None, ge=1, le=2**53 - 1)
    reason: Reason = "rollback"


class AdapterFields(Record):
    """What an adapter is registered as, and the base it was trained on."""

    name: NameText
    base: RefText


class AdapterIn(AdapterFields):
    """An adapter whose files were uploaded before."""

    model_config = example(
        {
            "name": "support-bot",
            "base": "minilm@1",
            "files": {"adapter_config.json": _BLOB, "adapter_model.safetensors": _SHA},
        }
    )
    files: Files
    origin: Origin | None = None


class BaseFields(Record):
    """What a base is registered as; `evidence` is how far its bytes are read, `contracts` are references."""

    name: NameText
    evidence: Literal["content", "structural", "declared"] = "content"
    contracts: Many[RefText] = Field(default=(), max_length=64)


class BaseIn(BaseFields):
    """A base whose files were uploaded before."""

    model_config = example({"name": "minilm", "files": {"config.json": _BLOB, "model.safetensors": _SHA}})
    files: Files
    origin: Origin | None = None


class DeclaredBaseIn(Record):
    """A base that its owner hashed: the manifest, and the files it was made of. No bytes are sent."""

    model_config = example(
        {
            "name": "minilm",
            "base": {"schema": 1, "kind": "base"},
            "files": {"model.safetensors": {"blake3": _BLOB, "sha256": _SHA, "size": 90868376}},
            "contracts": [],
        }
    )
    name: NameText
    base: JsonObject
    files: dict[FileName, DeclaredFile] = Field(min_length=1, max_length=4096)
    contracts: Many[RefText] = Field(default=(), max_length=64)


class InspectionIn(Record):
    """A directory to look at, whose files were uploaded before, and the base to hold it against."""

    model_config = example({"base": "minilm@1", "files": {"adapter_config.json": _BLOB}})
    files: Files
    base: RefText | None = None


class DocumentIn(BaseModel):
    """A document as it is written by hand, and the name to register it under."""

    model_config = ConfigDict(
        frozen=True,
        extra="forbid",
        strict=True,
        json_schema_extra={"examples": [{"name": "int8-serving", "document": {"contract": "ia3"}}]},
    )
    name: NameText
    document: JsonObject


class LabelsIn(Record):
    """Labels to set; null removes one."""

    model_config = example({"ref": "support-bot@2", "labels": {"team": "red", "draft": None}})
    ref: RefText
    labels: dict[LabelKey, Text | None] = Field(min_length=1, max_length=64)


class AttestationIn(Record):
    """What is said about a thing, in fields of one's own."""

    model_config = example({"ref": "support-bot@2", "body": {"tested_by": "red team", "passed": True, "runs": 3}})
    ref: RefText
    body: Annotated[dict[Key, Said], BeforeValidator(tupled)] = Field(min_length=1, max_length=256)


class YankIn(Record):
    """Let nothing new be built on it; `undo` takes an earlier yank back."""

    model_config = example({"ref": "support-bot@2", "reason": "answers in the wrong language", "undo": False})
    ref: RefText
    reason: Text
    undo: bool = False


class AliasIn(Record):
    """An alias and the version it should mean."""

    model_config = example({"ref": "support-bot@2", "alias": "stable"})
    ref: RefText
    alias: AliasText


class PurgeIn(Record):
    """Remove the bytes for good; the reason stays."""

    model_config = example({"ref": "support-bot@1", "reason": "contains personal data"})
    ref: RefText
    reason: Text


class VerificationIn(Record):
    """What to check: everything, or one thing with what it was made of; `expect_head` was kept elsewhere."""

    model_config = example({"ref": None, "deep": True, "recompute": False, "expect_head": None})
    ref: RefText | None = None
    deep: bool = False
    recompute: bool = False
    expect_head: str | None = Field(default=None, max_length=200)
    base_files: bool = False


class CollectionIn(Record):
    """Remove blobs that nothing names and that are older than this, in seconds."""

    model_config = example({"grace_s": 86400.0})
    grace_s: Finite = Field(default=86_400.0, ge=0, le=LONGEST_GRACE_S)


class LeaseIn(Record):
    """Who holds, and for how many seconds of the database's time."""

    model_config = example({"holder": "replica-7", "ttl_s": 60.0})
    holder: Annotated[str, StringConstraints(min_length=1, max_length=128, pattern=r"^[^\x00-\x1f\x7f]+$")]
    ttl_s: Finite = Field(default=60.0, ge=1, le=86_400)


class RenewIn(Record):
    """For how many seconds more."""

    model_config = example({"ttl_s": 60.0})
    ttl_s: Finite = Field(default=60.0, ge=1, le=86_400)


SpecBody = Annotated[
    CompositionSpec,
    BeforeValidator(tupled),
    Body(
        examples=[
            {
                "name": "support-bot",
                "base": "minilm@1",
                "members": [{"ref": "qa@2", "weight": 1.0}, {"ref": "tone@1", "weight": -0.5}],
                "method": "cat",
                "space": "delta",
            }
        ]
    ),
]
ReleaseBody = Annotated[
    ReleaseSpec,
    BeforeValidator(tupled),
    Body(examples=[{"name": "routed-bot", "lane": "joint_routed", "router": "router@1"}]),
]
PolicyBody = Annotated[ChannelPolicy, Body(examples=[{"evidence": "content", "evaluation": False}])]


class HealthOut(Record):
    """Alive."""

    status: Literal["ok"]


class ProblemItem(Record):
    """One thing that is wrong; `path` is a JSON pointer."""

    code: str
    path: str
    expected: str
    observed: str
    hint: str


class ProblemOut(Record):
    """RFC 9457 problem+json: `code` and `type` are stable; `head`, `decision` and `size` come with their errors."""

    type: str
    title: str
    status: int
    detail: str
    code: str
    errors: tuple[ProblemItem, ...]
    head: str | None = None
    size: int | None = Field(default=None, description="Bytes there are, where a range or offset lies outside.")
    admission: Digest | Literal[""] | None = None
    decision: dict[str, Any] | None = None
