"""The audit chain: every way to tamper with the database is found and named, and nothing else is blamed."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from sqlalchemy import select, text

from registry.db import Change, Database, audit, chain, guards, names, statements
from registry.db.rows import AuditEventRow, NameRow, TensorLocationRow
from registry.db.rows.core import table_of
from registry.db.verify import AuditFault, verify_audit
from tests.registry.db.examples import ME, adapter, base, compose, publish, statement, store
from tests.support.tampering import tamper


@pytest.fixture
def filled(database: Database) -> Database:
    """Six changes: a base, two adapters, a composition, a name, a label, a publication."""
    store(database, base())
    store(database, adapter(1), adapter(2))
    compose(database, adapter(9), adapter(1), adapter(2))
    database.change("name", ME, lambda change: names.assign(change, "qa", "adapter", adapter(1).digest))
    said = statement(adapter(1).digest, "label", {"team": "red"})
    database.change("label", ME, lambda change: statements.put(change, said))
    publish(database, "live", adapter(9).digest)
    return database


def faults(database: Database, expect_head: str | None = None) -> list[tuple[str, str, str]]:
    """Code, table and key of every fault."""
    with database.reading() as reader:
        return [(fault.code, fault.table, fault.key) for fault in verify_audit(reader, expect_head)]


def event_of(database: Database, sequence: int) -> tuple[str, str]:
    """Change and hash of an event."""
    with database.reading() as reader:
        query = text("SELECT change_id, hash FROM audit_event WHERE sequence = :n")
        row = reader.session.execute(query, {"n": sequence}).one()
        return row[0], row[1]


def test_an_untouched_database_has_no_fault(filled: Database) -> None:
    assert faults(filled) == []
    with filled.reading() as reader:
        head = audit.head(reader)
        assert head is not None
        assert head.sequence == 6
    assert faults(filled, head.hash) == []
    assert faults(filled, event_of(filled, 3)[1]) == []


AWKWARD = [
    "",
    "\\N",
    "\\.",
    "back\\slash",
    "tab\there",
    "line\nend\r\n",
    "'quoted' \"twice\"",
    "%s {} ?",
    "\u00e9 \U0001f600",
]
"""What a stream of rows could take for a mark of its own."""


def test_rows_written_together_hold_exactly_what_was_given(database: Database) -> None:
    rows = [{"name": text_, "kind": "adapter", "created": "now"} for text_ in AWKWARD]
    database.change("names", ME, lambda change: change.write(NameRow, rows))
    with database.reading() as reader:
        assert set(reader.all(select(NameRow.name))) == set(AWKWARD)
    assert faults(database) == []


def test_events_are_counted_without_gap_and_say_who_did_what(filled: Database) -> None:
    filled.record("refuse", "mallory", base().digest, {"code": "NO"})
    with filled.reading() as reader:
        events = audit.page(reader).items
    assert [event.sequence for event in events] == [7, 6, 5, 4, 3, 2, 1]
    assert [event.action for event in events[:3]] == ["refuse", "publish", "label"]
    assert (events[0].principal, events[0].subject, events[0].detail) == ("mallory", base().digest, {"code": "NO"})


def test_a_change_that_fails_leaves_no_event(filled: Database) -> None:
    def work(change: Change) -> None:
        names.assign(change, "other", "adapter", adapter(1).digest)
        raise KeyError("stop")

    with pytest.raises(KeyError):
        filled.change("add", ME, work)
    assert faults(filled) == []
    with filled.reading() as reader:
        assert audit.page(reader).items[0].sequence == 6


EDITS = {
    "manifest bytes": (
        "UPDATE manifest SET data = :data WHERE kind = 'base'",
        ("ROW_EDITED", "manifest", f'["{base().digest}"]'),
    ),
    "manifest column": (
        f"UPDATE manifest SET family = 'dora' WHERE digest = '{adapter(1).digest}'",
        ("ROW_EDITED", "manifest", f'["{adapter(1).digest}"]'),
    ),
    "name moved": (
        f"UPDATE name_version SET digest = '{adapter(2).digest}'",
        ("ROW_EDITED", "name_version", '["qa",1]'),
    ),
    "label value": (
        "UPDATE label SET value = 'blue'",
        ("ROW_EDITED", "label", f'["{adapter(1).digest}","team",1]'),
    ),
    "generation reason": (
        "UPDATE generation SET reason = 'other'",
        ("ROW_EDITED", "generation", '["live",1]'),
    ),
    "published artifact": (
        f"UPDATE generation_artifact SET artifact = '{adapter(1).digest}'",
        ("ROW_EDITED", "generation_artifact", '["live",1,0]'),
    ),
    "edge removed": (
        f"DELETE FROM edge WHERE child = '{adapter(2).digest}'",
        ("ROW_MISSING", "edge", f'["{adapter(2).digest}","{base().digest}","base",0]'),
    ),
    "label removed": (
        "DELETE FROM label",
        ("ROW_MISSING", "label", f'["{adapter(1).digest}","team",1]'),
    ),
    "row smuggled into a change": (
        "INSERT INTO purge_event (subject, reason, created, change_id) "
        f"SELECT '{adapter(2).digest}', 'x', 'now', change_id FROM label",
        ("ROW_INSERTED", "purge_event", f'["{adapter(2).digest}"]'),
    ),
    "row of an invented change": (
        "INSERT INTO purge_event (subject, reason, created, change_id) "
        f"VALUES ('{adapter(2).digest}', 'x', 'now', 'ffff')",
        ("EVENT_MISSING", "purge_event", f'["{adapter(2).digest}"]'),
    ),
    "event edited": (
        "UPDATE audit_event SET principal = 'mallory' WHERE sequence = 4",
        ("EVENT_EDITED", "audit_event", "[4]"),
    ),
    "event detail edited": (
        "UPDATE audit_event SET detail_json = '{}x' WHERE sequence = 4",
        ("EVENT_EDITED", "audit_event", "[4]"),
    ),
    "event hash edited": (
        "UPDATE audit_event SET hash = 'blake3:0' WHERE sequence = 4",
        ("EVENT_EDITED", "audit_event", "[4]"),
    ),
    "event link edited": (
        "UPDATE audit_event SET previous = 'blake3:0' WHERE sequence = 4",
        ("EVENT_EDITED", "audit_event", "[4]"),
    ),
    "event marks edited": (
        "UPDATE audit_event SET rows_json = '[]' WHERE sequence = 4",
        ("EVENT_EDITED", "audit_event", "[4]"),
    ),
    "first event edited": (
        "UPDATE audit_event SET action = 'other' WHERE sequence = 1",
        ("EVENT_EDITED", "audit_event", "[1]"),
    ),
}


@pytest.mark.parametrize("edit", EDITS)
def test_an_edit_is_found_and_nothing_else_is_blamed(filled: Database, edit: str) -> None:
    statement_, expected = EDITS[edit]
    tamper(filled.url, statement_, data=base(2).canonical())
    assert faults(filled) == [expected]


def test_a_fault_names_the_change(filled: Database) -> None:
    tamper(filled.url, "UPDATE label SET value = 'blue'")
    with filled.reading() as reader:
        (fault,) = verify_audit(reader)
    assert isinstance(fault, AuditFault)
    assert fault.change == event_of(filled, 5)[0]


def test_a_removed_event_is_a_gap_and_its_rows_stand_alone(filled: Database) -> None:
    tamper(filled.url, "DELETE FROM audit_event WHERE sequence = 4")
    assert faults(filled) == [
        ("EVENT_MISSING", "audit_event", "[4]"),
        ("EVENT_MISSING", "name", '["qa"]'),
    ]


def test_a_removed_tail_is_found_by_its_rows(filled: Database) -> None:
    tamper(filled.url, "DELETE FROM audit_event WHERE sequence = 6")
    ((code, table, _),) = faults(filled)
    assert code == "EVENT_MISSING"
    assert table in {"manifest", "edge", "generation", "generation_artifact"}


def test_a_tail_removed_with_its_rows_is_found_by_the_head_kept_elsewhere(filled: Database) -> None:
    change, head = event_of(filled, 6)
    tamper(
        filled.url,
        *(
            f"DELETE FROM {table} WHERE change_id = '{change}'"
            for table in ("generation_artifact", "generation", "edge", "manifest", "audit_event")
        ),
    )
    assert faults(filled) == []
    assert faults(filled, head) == [("HEAD_MISSING", "audit_event", "[]")]


def test_a_history_written_anew_is_found_by_the_head_kept_elsewhere(filled: Database) -> None:
    head = event_of(filled, 6)[1]
    tamper(filled.url, *(f"DELETE FROM {table.name}" for table in reversed(guards.guarded_tables())))
    store(filled, base())
    assert faults(filled) == []
    assert faults(filled, head) == [("HEAD_MISSING", "audit_event", "[]")]


def test_an_event_rewritten_with_a_fitting_hash_breaks_the_chain_at_that_event(filled: Database) -> None:
    with filled.reading() as reader:
        row = reader.session.get_one(AuditEventRow, 4)
    row.principal = "mallory"
    tamper(
        filled.url,
        "UPDATE audit_event SET principal = 'mallory', hash = :hash WHERE sequence = 4",
        hash=chain.event_hash(row),
    )
    assert faults(filled) == [("EVENT_REWRITTEN", "audit_event", "[4]")]


def test_faults_of_several_kinds_are_all_named(filled: Database) -> None:
    tamper(
        filled.url,
        "UPDATE label SET value = 'blue'",
        "DELETE FROM generation_artifact",
        "UPDATE audit_event SET action = 'x' WHERE sequence = 2",
    )
    assert {(code, table) for code, table, _ in faults(filled)} == {
        ("EVENT_EDITED", "audit_event"),
        ("ROW_EDITED", "label"),
        ("ROW_MISSING", "generation_artifact"),
    }


# a driver gives whole text, and bytes that are none of UTF-8 as these surrogates
characters = st.characters(codec="utf-8") | st.characters(min_codepoint=0xDC80, max_codepoint=0xDCFF)
cells = st.text(characters) | st.integers() | st.floats(allow_nan=False) | st.booleans() | st.none()


@given(st.lists(st.tuples(cells, cells, cells), min_size=1, max_size=4))
def test_a_mark_is_of_its_row_alone_and_its_key_is_the_json_of_the_key_cells(keys: list[tuple[object, ...]]) -> None:
    table, rows = table_of(TensorLocationRow), [(*key, 8, "F32", "[2]", "change") for key in keys]
    marks = chain.marks(table, rows)
    assert [key for _, key, _ in marks] == [json.dumps(key, separators=(",", ":")) for key in keys]
    assert marks == [mark for row in rows for mark in chain.marks(table, [row])]
