"""Publication and statement manifests, and the cache identity of a generation."""

from __future__ import annotations

from typing import Annotated, ClassVar, Final, Literal, Self

from pydantic import Field, StringConstraints, model_validator

from schemas.digests import Digest
from schemas.model import Finite, Identifier, Key, Manifest, NoneLiteral, NotVerified, Record
from schemas.names import Name

Generation = Annotated[int, Field(ge=1, le=2**53 - 1)]
Reason = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_-]{0,63}$")]


REQUEST_FIELDS: Final = ("token_prefix", "side_input", "isolation_namespace", "route_trace")
"""What only a request knows, and a server must add to a prefix key beside the cache identity."""


class KvIdentity(Manifest):
    """The static part of a prefix-cache key, meant as a server's cache salt.

    Channel and generation are hashed too, so no two generations share one: 42's cache is not reusable after a rollback
    and 41's is not relabelled 43. The server adds the request part, `REQUEST_FIELDS` (C 0x05Q).
    """

    KIND: ClassVar[str] = "kv_identity"
    kind: Literal["kv_identity"] = "kv_identity"
    base: Digest
    weight_transforms: tuple[Digest, ...]
    router_revision: Digest | NoneLiteral = "none"
    route_policy: Digest | NoneLiteral = "none"
    threshold: Finite | NoneLiteral = "none"
    comparator: Key = "none"
    position_contract: NotVerified = "not_verified"
    cache_abi: NotVerified = "not_verified"
    numerical_contract: NotVerified = "not_verified"
    channel: Name
    generation: Generation


class PublicationManifest(Manifest):
    """One generation of a channel: an ordered artifact tuple, what came before and why.

    A rollback is a new generation whose `restored` names the one whose tuple it carries.
    """

    KIND: ClassVar[str] = "publication"
    kind: Literal["publication"] = "publication"
    channel: Name
    generation: Generation
    artifacts: tuple[Digest, ...] = Field(min_length=1)
    previous: Digest | None
    reason: Reason
    restored: Generation | None
    kv_identity: Digest

    @model_validator(mode="after")
    def _history_is_possible(self) -> Self:
        if (self.generation == 1) != (self.previous is None):
            raise ValueError("generation 1 has no previous publication, every other has one")
        if self.restored is not None and self.restored >= self.generation:
            raise ValueError("a generation restores an earlier one")
        return self


class ChannelPolicy(Record):
    """What a channel asks of what is published to it: how far its base was read, and a passed evaluation."""

    evidence: Literal["any", "declared", "structural", "content"] = "any"
    evaluation: bool = False


Topic = Literal["provenance", "licence", "label", "yank", "note"]


class StatementManifest(Manifest):
    """What somebody says about a thing. `previous` chains statements, so a -> b -> a does not collapse."""

    KIND: ClassVar[str] = "statement"
    kind: Literal["statement"] = "statement"
    topic: Topic
    subject: Digest
    body: dict[Identifier, str | int | float | bool | tuple[str, ...] | None]
    author: Identifier
    previous: Digest | None
