"""The files of the catalogue, read once."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from types import MappingProxyType
from typing import get_args

import yaml

from schemas.catalogue.model import Failure, Family, FamilyFile
from schemas.model import validate


@cache
def failures() -> tuple[Failure, ...]:
    """Every failure, in the order of families and files.

    Raises:
        RefusedError: `MANIFEST_INVALID`, one problem a field.
    """
    return tuple(failure for family in get_args(Family) for failure in _read(family))


@cache
def by_id() -> Mapping[str, Failure]:
    """Every failure under its identifier."""
    return MappingProxyType({failure.id: failure for failure in failures()})


def _read(family: Family) -> Iterator[Failure]:
    text = files(__package__).joinpath(f"{family}.yaml").read_text(encoding="utf-8")
    file = validate(FamilyFile, yaml.safe_load(text))
    for group in file.groups:
        for entry in group.failures:
            yield Failure(
                **dict(entry),
                family=family,
                documented=file.documented[entry.source],
                oracle=group.oracle,
                test=group.test,
                limit=group.limit,
            )
