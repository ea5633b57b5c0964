"""Mutation closure: every one-field change of a fixture must be refused by its contract or fail a named check.

No digest takes part. Mutants: a number moved, a string replaced (by every other legal word where the contract lists
them), a boolean negated, null in place of a value and a value in place of null, a list reordered or shortened, a
field missing, a field too many.
"""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal, TypeAlias, get_args, get_origin

from pydantic import BaseModel, ValidationError

from oracles.errors import FixtureRefusedError
from oracles.model import Fixture, Oracle
from schemas.canonical import JsonValue

Path: TypeAlias = tuple[str | int, ...]
Vocabulary: TypeAlias = dict[str, tuple[str, ...]]


@dataclass(frozen=True, kw_only=True)
class Mutant:
    """One changed fixture: where, how, and the whole document."""

    path: Path
    change: str
    document: JsonValue

    @property
    def pointer(self) -> str:
        """The changed place as a JSON pointer."""
        return "".join(f"/{step}" for step in self.path)

    @property
    def label(self) -> str:
        """Place and change, as survivors are listed."""
        return f"{self.pointer}: {self.change}"


@dataclass(frozen=True, kw_only=True)
class Closure:
    """The outcome of all mutants of one oracle.

    `survivors` have a role and were not rejected; `mislabelled` were declared without role although a check depends
    on them, or name no place of the fixture. Both are empty when the closure is complete.
    """

    oracle: str
    generated: int
    by_contract: int
    by_check: int
    without_role: int
    survivors: tuple[str, ...]
    mislabelled: tuple[str, ...]

    @property
    def rejected(self) -> int:
        """Mutants refused by the typed contract or by a named check."""
        return self.by_contract + self.by_check

    @property
    def complete(self) -> bool:
        """Every mutant with a role was rejected, and no role was denied wrongly."""
        return not self.survivors and not self.mislabelled and self.rejected == self.generated


def vocabulary(model: type[BaseModel]) -> Vocabulary:
    """Field name -> legal words, for every string field whose contract lists them."""
    words: Vocabulary = {}
    for name, info in model.model_fields.items():
        _collect(name, info.annotation, words)
    return words


def _collect(name: str, annotation: object, words: Vocabulary) -> None:
    if get_origin(annotation) is Literal:
        legal = tuple(word for word in get_args(annotation) if isinstance(word, str))
        words[name] = tuple(dict.fromkeys((*words.get(name, ()), *legal)))
    elif isinstance(annotation, type) and issubclass(annotation, BaseModel):
        for field, info in annotation.model_fields.items():
            _collect(field, info.annotation, words)
    for argument in get_args(annotation):
        _collect(name, argument, words)


def mutants(document: JsonValue, words: Vocabulary) -> Iterator[Mutant]:
    """Every one-field mutant of a fixture document."""
    for path, value in _walk(document, ()):
        for change, replacement in _changes(value, _word_list(path, words)):
            yield Mutant(path=path, change=change, document=_replaced(document, path, replacement))


def _word_list(path: Path, words: Vocabulary) -> tuple[str, ...]:
    names = [step for step in path if isinstance(step, str)]
    return words.get(names[-1], ()) if names else ()


def _walk(value: JsonValue, path: Path) -> Iterator[tuple[Path, JsonValue]]:
    yield path, value
    if isinstance(value, dict):
        for key, child in value.items():
            yield from _walk(child, (*path, key))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _walk(child, (*path, index))


def _changes(value: JsonValue, words: tuple[str, ...]) -> Iterator[tuple[str, JsonValue]]:
    if isinstance(value, dict):
        for key in value:
            yield f"missing {key}", {k: v for k, v in value.items() if k != key}
        yield "extra field", {**value, "unexpected": 0}
    elif isinstance(value, list):
        yield from _list_changes(value)
    elif isinstance(value, bool):
        yield "negated", not value
    elif isinstance(value, int):
        yield "number", value + 1
    elif isinstance(value, float):
        yield "number", value + 0.125
    elif isinstance(value, str):
        yield "string", f"{value}-changed"
        yield from (("word " + word, word) for word in words if word != value)
    if not isinstance(value, dict):
        yield ("null", None) if value is not None else ("value for null", 0)


def _list_changes(value: list[JsonValue]) -> Iterator[tuple[str, JsonValue]]:
    for name, changed in (("order", value[::-1]), ("order", value[1:] + value[:1])):
        if changed != value:
            yield name, changed
            break
    if value:
        yield "shortened", value[:-1]


def _replaced(document: JsonValue, path: Path, replacement: JsonValue) -> JsonValue:
    if not path:
        return replacement
    step, rest = path[0], path[1:]
    if isinstance(document, dict) and isinstance(step, str):
        return {k: _replaced(v, rest, replacement) if k == step else v for k, v in document.items()}
    if isinstance(document, list) and isinstance(step, int):
        return [_replaced(v, rest, replacement) if i == step else v for i, v in enumerate(document)]
    raise KeyError(path)


def rejection(oracle: Oracle, document: JsonValue) -> str | None:
    """What rejects the document: `contract`, or the name of the first failing check; None when nothing does."""
    try:
        fixture: Fixture = oracle.fixture.model_validate_json(json.dumps(document))
        for check in oracle.evaluate(fixture):
            if not check.passed:
                return check.name
    except (ValidationError, FixtureRefusedError):
        return "contract"
    return None


def _lies_at(mutant: Mutant, place: str) -> bool:
    """Whether a declared place, a pointer or one `pointer: change`, covers the mutant."""
    return place in (mutant.pointer, mutant.label) or mutant.pointer.startswith(f"{place}/")


def close_mutations(oracle: Oracle) -> Closure:
    """Run every mutant of the oracle's fixture."""
    document: JsonValue = json.loads(oracle.fixture_bytes())
    verdicts = [(m, rejection(oracle, m.document)) for m in mutants(document, vocabulary(oracle.fixture))]
    active = [(m, verdict) for m, verdict in verdicts if not any(_lies_at(m, place) for place in oracle.no_role)]
    passive = [(m, verdict) for m, verdict in verdicts if any(_lies_at(m, place) for place in oracle.no_role)]
    absent = tuple(
        f"{place}: no such place" for place in oracle.no_role if not any(_lies_at(m, place) for m, _ in passive)
    )
    contract = sum(1 for _, verdict in active if verdict == "contract")
    survivors = tuple(m.label for m, verdict in active if verdict is None)
    return Closure(
        oracle=oracle.name,
        generated=len(active),
        by_contract=contract,
        by_check=len(active) - contract - len(survivors),
        without_role=len(passive),
        survivors=survivors,
        mislabelled=absent + tuple(m.label for m, v in passive if v not in (None, "contract")),
    )
