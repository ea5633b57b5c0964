"""Parameters that many routes share.

The grammar of names and references stands in the description only: the use case is what refuses another one, with its
own code, whoever asks.
"""

from __future__ import annotations

from typing import Annotated, Any, Final

from fastapi import Header, Path, Query
from pydantic import Field, StringConstraints

from schemas.names import ALIAS_PATTERN, NAME_PATTERN

_NAME: Final = NAME_PATTERN.strip("^$")
_NUMBER: Final = "[1-9][0-9]{0,17}"
_ALIAS: Final = "[a-z][a-z0-9._-]{0,31}"
REF_PATTERN: Final = f"^({_NAME}(@({_NUMBER}|{_ALIAS}))?|blake3:[0-9a-f]{{8,64}}|channel:{_NAME}(@g{_NUMBER})?)$"
MOST: Final = 500
"""Items of one page."""


def written(pattern: str, *examples: str) -> dict[str, Any]:
    """What a schema says of a text: how it is written, with examples."""
    return {"pattern": pattern, "examples": list(examples)}


_REF: Final = written(REF_PATTERN, "support-bot@2", "support-bot@stable", "blake3:1f5e91f4", "channel:bot@g3")
_REF_SAYS: Final = "NAME, NAME@VERSION, NAME@ALIAS, blake3:HEX or channel:NAME@gN."

Text = Annotated[str, StringConstraints(min_length=1, max_length=1000, pattern=r"^[^\x00-\x1f\x7f]+$")]
"""A line of text."""
NameText = Annotated[str, Field(json_schema_extra=written(NAME_PATTERN, "support-bot"))]
AliasText = Annotated[str, Field(json_schema_extra=written(ALIAS_PATTERN, "stable"))]
RefText = Annotated[str, Field(description=_REF_SAYS, json_schema_extra=_REF)]
RefPath = Annotated[str, Path(description=_REF_SAYS, json_schema_extra=_REF)]
DigestPath = Annotated[
    str,
    Path(
        description="Digest of a manifest, whole or its first digits.",
        json_schema_extra=written("^blake3:[0-9a-f]{8,64}$", "blake3:1f5e91f4"),
    ),
]
ChannelPath = Annotated[str, Path(description="The channel.", json_schema_extra=written(NAME_PATTERN, "bot"))]
RefQuery = Annotated[str, Query(description=_REF_SAYS, json_schema_extra=_REF)]
After = Annotated[str | None, Query(description="The `next` token of the page before.", max_length=2000)]
Limit = Annotated[int, Query(ge=1, le=MOST, description="Items of a page.")]
IfMatch = Annotated[
    str | None,
    Header(
        alias="If-Match",
        description='The head that is expected, as `"gN"`; `"g0"` for a new channel. 428 without.',
        json_schema_extra=written('^"g(0|[1-9][0-9]{0,15})"$', '"g0"', '"g41"'),
    ),
]
IfNoneMatch = Annotated[
    str | None,
    Header(
        alias="If-None-Match", description="An ETag that was answered before; 304 without a body while it still holds."
    ),
]
IdempotencyKey = Annotated[
    str | None,
    Header(
        alias="Idempotency-Key",
        description="A text of the caller's own: the same request under the same key gets the same answer again.",
        min_length=1,
        max_length=128,
        pattern=r"^[\x21-\x7e]+$",
    ),
]
