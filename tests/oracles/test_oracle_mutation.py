"""The mutation engine on small oracles whose survivors are known beforehand."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Literal

from oracles.checks import Check, equal
from oracles.model import Fixture, Oracle
from oracles.mutation import close_mutations, mutants, vocabulary


class ToyFixture(Fixture):
    values: tuple[int, ...]
    order: Literal["first", "last"]
    loud: bool
    label: str
    note: None


@dataclass(frozen=True, kw_only=True)
class ToyOracle(Oracle):
    data: bytes

    def fixture_bytes(self) -> bytes:
        return self.data


def complete(fixture: ToyFixture) -> Iterator[Check]:
    yield equal("values", fixture.values, (1, 2, 3), source="V 0x00")
    yield equal("picked", fixture.values[0 if fixture.order == "first" else -1], 1, source="V 0x00")
    yield equal("loud", fixture.loud, True, source="V 0x00")


def forgetful(fixture: ToyFixture) -> Iterator[Check]:
    yield equal("sum", sum(fixture.values), 6, source="V 0x00")


DATA = b'{"values": [1, 2, 3], "order": "first", "loud": true, "label": "toy", "note": null}'


def toy(evaluate: object, **no_role: str) -> ToyOracle:
    assert callable(evaluate)
    return ToyOracle(
        name="toy",
        document="V",
        sections=("0x00",),
        module="none",
        fixture=ToyFixture,
        evaluate=evaluate,
        proves=(),
        does_not_prove=(),
        no_role={f"/{name}": reason for name, reason in no_role.items()},
        data=DATA,
    )


def test_every_kind_of_one_field_change_is_made() -> None:
    made = {(m.pointer, m.change) for m in mutants({"a": [1, 2.5], "b": True, "c": None, "w": "x"}, {"w": ("x", "y")})}
    assert made == {
        ("", "missing a"),
        ("", "missing b"),
        ("", "missing c"),
        ("", "missing w"),
        ("", "extra field"),
        ("/a", "order"),
        ("/a", "shortened"),
        ("/a", "null"),
        ("/a/0", "number"),
        ("/a/0", "null"),
        ("/a/1", "number"),
        ("/a/1", "null"),
        ("/b", "negated"),
        ("/b", "null"),
        ("/c", "value for null"),
        ("/w", "string"),
        ("/w", "word y"),
        ("/w", "null"),
    }


def test_legal_words_come_from_the_typed_contract() -> None:
    assert vocabulary(ToyFixture) == {"order": ("first", "last")}


def test_a_complete_oracle_rejects_every_mutant_with_a_role() -> None:
    closure = close_mutations(toy(complete, label="a display name"))
    assert closure.complete
    assert closure.without_role == 2
    assert (closure.by_contract, closure.by_check) == (14, 7)
    assert closure.generated == closure.rejected == 21


def test_a_field_no_check_depends_on_survives() -> None:
    closure = close_mutations(toy(forgetful, label="a display name"))
    assert closure.survivors == ("/values: order", "/order: word last", "/loud: negated")
    assert not closure.complete


def test_denying_the_role_of_a_used_field_is_found() -> None:
    closure = close_mutations(toy(complete, label="a display name", loud="said to be unused"))
    assert closure.mislabelled == ("/loud: negated",)
    assert not closure.complete


def test_declaring_a_place_the_fixture_does_not_have_is_found() -> None:
    closure = close_mutations(toy(complete, label="a display name", colour="gone"))
    assert closure.mislabelled == ("/colour: no such place",)
