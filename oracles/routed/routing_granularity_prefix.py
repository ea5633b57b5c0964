"""A persisted prompt route and the K/V key that binds it (R 0x07C, 0x07H)."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from oracles.checks import Check, equal
from oracles.model import Fixture, FixtureVector
from oracles.routed.identities import identify
from schemas.digests import Digest

PROMPT, PERSISTENCE, WITNESS = "R 0x07C", "R 0x07H", "R 0x07L"


class LayerRoute(Fixture):
    """Selected ids and gates of one layer."""

    ids: tuple[int, ...]
    gates: FixtureVector


class Prefix(Fixture):
    """A persisted prompt route with everything its K/V belongs to."""

    base: str
    router: str
    versions: tuple[str, ...]
    layers: tuple[LayerRoute, LayerRoute]
    pooling: Literal["masked_mean", "last_valid_token"]
    tokens: tuple[int, ...]
    cache_policy: Literal["exact_route", "prefix_only"]
    decode_steps: Annotated[int, Field(ge=1)]


def route_signature(prefix: Prefix) -> Digest:
    """rho_b: router revision, pooling policy, and ids, versions and gates of every layer."""
    return identify("oracle_route", prefix.model_dump(mode="json", exclude={"base", "tokens", "cache_policy"}))


def prefix_key(prefix: Prefix) -> Digest:
    """K_prefix over base, router, versions, resolved route, pooling, tokens and cache policy."""
    return identify("oracle_prefix", prefix.model_dump(mode="json", exclude={"decode_steps"}))


def persistence_checks(prefix: Prefix) -> Iterator[Check]:
    """One route for every decode step; every part of it belongs to the K/V identity."""
    route = tuple((layer.ids, layer.gates) for layer in prefix.layers)
    yield equal("prompt route", route, (((0, 2), (0.75, 0.25)), ((1, 0), (0.625, 0.375))), source=PROMPT)
    named: tuple[str | int, ...] = (
        prefix.base,
        prefix.router,
        *prefix.versions,
        prefix.pooling,
        prefix.cache_policy,
        *prefix.tokens,
    )
    yield equal("prefix", named, PREFIX, source=PERSISTENCE)
    steps = [prefix.model_copy(update={"tokens": prefix.tokens + (1,) * n}) for n in range(prefix.decode_steps)]
    reused = sum(route_signature(step) == route_signature(prefix) for step in steps)
    keys = len({prefix_key(step) for step in steps})
    yield equal("decode steps that reuse the route", (reused, keys), (4, 4), source=WITNESS)
    key = prefix_key(prefix)
    other = prefix.layers[0].model_copy(update={"ids": prefix.layers[0].ids[::-1]})
    changes: dict[str, object] = {
        "base": "base-r2",
        "router": "router-r2",
        "versions": ("adapter-0-r2", *prefix.versions[1:]),
        "layers": (other, prefix.layers[1]),
        "pooling": "last_valid_token",
        "tokens": (*prefix.tokens, 1),
        "cache_policy": "prefix_only",
    }
    moved = tuple(name for name, value in changes.items() if prefix_key(prefix.model_copy(update={name: value})) != key)
    yield equal("parts of the K/V key", moved, tuple(changes), source=PERSISTENCE)
    yield equal("a route change is another K/V key", "layers" in moved, True, source=WITNESS)


PREFIX = ("base-r1", "router-r1", "adapter-0-r1", "adapter-1-r1", "adapter-2-r1", "masked_mean", "exact_route", 5, 3, 8)
