"""What an oracle is: a typed fixture, one pure function from fixture to checks, and what it may claim."""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, ConfigDict, Field

from oracles.checks import Check
from oracles.matrix import Matrix, Vector, shape

Document: TypeAlias = Literal["V", "C", "R"]


def _rectangular(a: Matrix) -> Matrix:
    shape(a)
    return a


FixtureMatrix: TypeAlias = Annotated[Matrix, AfterValidator(_rectangular)]
"""A matrix in a fixture: rows of one positive length."""

FixtureVector: TypeAlias = Annotated[Vector, Field(min_length=1)]
"""A vector in a fixture: at least one entry."""


class Fixture(BaseModel):
    """Base of every fixture: frozen, strict, no unknown field, no default, finite numbers only."""

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


@dataclass(frozen=True, kw_only=True)
class Oracle:
    """One oracle.

    `evaluate` is pure and lazy: it yields checks in a fixed order and computes everything from the fixture, while the
    expectations stand in the module, typed from the document. `own` names the fixture fields whose values the document
    does not print: chosen by us, or recovered from its results. `no_role` maps a fixture field (JSON pointer), or one
    change of it (`pointer: change`), to the reason why no check depends on it. `document_mutations` is the number of
    rejected mutations the document reports, if it reports one.
    """

    name: str
    document: Document
    sections: tuple[str, ...]
    module: str
    fixture: type[Fixture]
    evaluate: Callable[[Any], Iterable[Check]]
    proves: tuple[str, ...]
    does_not_prove: tuple[str, ...]
    own: tuple[str, ...] = ()
    no_role: Mapping[str, str] = field(default_factory=dict)
    document_mutations: int | None = None

    def fixture_bytes(self) -> bytes:
        """The fixture file that lies beside the module under the module's own name."""
        package, _, stem = self.module.rpartition(".")
        return files(package).joinpath(f"{stem}.json").read_bytes()

    def checks(self, fixture: bytes) -> tuple[Check, ...]:
        """Every check of one fixture; a fixture outside the typed contract raises."""
        return tuple(self.evaluate(self.fixture.model_validate_json(fixture)))
