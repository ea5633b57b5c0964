"""Manifests: exact bytes, edges, prefixes, filtered pages."""

from __future__ import annotations

import pytest
from sqlalchemy import text

from registry.db import Database, manifests, refs, statements
from registry.db.manifests import ManifestFilter
from registry.errors import DigestMismatchError, NotFoundError, UsageProblemError
from schemas.adapter import AdapterManifest
from schemas.base import BaseManifest
from schemas.names import DigestRef
from tests.registry.db.examples import ME, adapter, base, compose, statement, store
from tests.support.tampering import tamper


def test_a_manifest_comes_back_with_the_exact_bytes_that_were_hashed(database: Database) -> None:
    store(database, base())
    with database.reading() as reader:
        row = manifests.find(reader, base().digest)
        assert row is not None
        assert row.data == base().canonical()
        assert manifests.get(reader, base().digest) == base()
        assert manifests.load(reader, base().digest, BaseManifest) == base()


def test_the_same_manifest_again_creates_nothing(database: Database) -> None:
    put = [database.change("add", ME, lambda change: manifests.put(change, base())) for _ in range(2)]
    assert put == [True, False]
    with database.reading() as reader:
        assert reader.session.scalar(text("SELECT count(*) FROM audit_event")) == 1


def test_an_unknown_digest_is_not_found(database: Database) -> None:
    with database.reading() as reader, pytest.raises(NotFoundError) as caught:
        manifests.get(reader, base().digest)
    assert caught.value.code == "MANIFEST_UNKNOWN"


def test_a_manifest_of_another_kind_is_refused_by_name(database: Database) -> None:
    store(database, base())
    with database.reading() as reader, pytest.raises(UsageProblemError) as caught:
        manifests.load(reader, base().digest, AdapterManifest)
    assert caught.value.code == "KIND_UNEXPECTED"


def test_kinds_and_bases_are_told_without_reading_a_manifest(database: Database) -> None:
    one, other = adapter(1), adapter(2, of=base(2))
    store(database, base(), base(2), one, other)
    compose(database, adapter(3), one)
    tamper(database.url, "UPDATE manifest SET data = :data", data=b"")
    with database.reading() as reader:
        assert manifests.kind_of(reader, one.digest) == "adapter"
        assert manifests.kind_of(reader, adapter(4).digest) is None
        assert manifests.bases_of(reader, [one.digest, other.digest]) == {base().digest, base(2).digest}
        assert manifests.bases_of(reader, [adapter(3).digest]) == {base().digest}


def test_a_changed_byte_is_a_digest_mismatch_when_read(database: Database) -> None:
    store(database, base())
    changed = base().canonical().replace(b"gelu", b"relu")
    tamper(database.url, "UPDATE manifest SET data = :data", data=changed)
    with database.reading() as reader, pytest.raises(DigestMismatchError):
        manifests.get(reader, base().digest)


def test_bytes_turned_into_text_are_still_read_and_accused(database: Database) -> None:
    if not database.url.startswith("sqlite"):
        return
    store(database, base())
    tamper(database.url, "UPDATE manifest SET data = CAST(data || ' ' AS TEXT)")
    with database.reading() as reader, pytest.raises(DigestMismatchError):
        manifests.get(reader, base().digest)


def test_a_prefix_finds_what_begins_with_it_and_nothing_else(database: Database) -> None:
    bases = [base(number) for number in range(1, 41)]
    store(database, *bases)
    with database.reading() as reader:
        for wanted in bases:
            prefix = wanted.digest[:8]
            expected = sorted(item.digest for item in bases if item.digest.startswith(prefix))
            assert [found for found, _ in manifests.candidates(reader, prefix)] == expected
            assert refs.resolve(reader, DigestRef(wanted.digest[:15])) == wanted.digest


def test_an_ambiguous_prefix_lists_its_candidates(database: Database) -> None:
    store(database, *(base(number) for number in range(1, 41)))
    with database.reading() as reader, pytest.raises(UsageProblemError) as caught:
        refs.resolve(reader, DigestRef("blake3:"))
    assert caught.value.code == "REF_AMBIGUOUS"
    assert caught.value.problems[0].observed.count("blake3:") == 20


def test_pages_walk_over_everything_once_newest_first(database: Database) -> None:
    bases = [base(number) for number in range(1, 8)]
    for one in bases:
        store(database, one)
    seen, token = [], None
    with database.reading() as reader:
        while True:
            found = manifests.page(reader, ManifestFilter(kind="base"), token, limit=3)
            seen += [row.digest for row in found.items]
            token = found.next
            if token is None:
                break
    assert seen == [one.digest for one in reversed(bases)]


@pytest.mark.parametrize("token", ["x", "WzFd", "WyJhIiwiYiIsImMiXQ", "bnVsbA", "é"])
def test_a_made_up_page_token_is_refused(database: Database, token: str) -> None:
    with database.reading() as reader, pytest.raises(UsageProblemError) as caught:
        manifests.page(reader, ManifestFilter(), token)
    assert caught.value.code == "PAGE_TOKEN_INVALID"


def test_filters_restrict_by_column(database: Database) -> None:
    other = base(2)
    mine, rank_stabilised, theirs = adapter(1), adapter(2, family="rslora"), adapter(3, other)
    store(database, base(), other, mine, rank_stabilised, theirs)
    made = compose(database, adapter(9), mine, rank_stabilised)

    def listed(chosen: ManifestFilter) -> set[str]:
        with database.reading() as reader:
            return {row.digest for row in manifests.page(reader, chosen).items}

    assert listed(ManifestFilter(kind="base")) == {base().digest, other.digest}
    assert listed(ManifestFilter(base=other.digest)) == {theirs.digest}
    assert listed(ManifestFilter(family="rslora")) == {rank_stabilised.digest}
    assert listed(ManifestFilter(method="cat", kind="composition")) == {made.digest}
    assert listed(ManifestFilter(outcome="admitted")) == {made.admission}
    assert listed(ManifestFilter(outcome="refused")) == set()


def test_a_label_filter_follows_the_current_value_only(database: Database) -> None:
    store(database, base(), adapter(1), adapter(2))
    subject = adapter(1).digest
    first = statement(subject, "label", {"team": "red"})
    second = statement(subject, "label", {"team": "blue"}, first)

    def listed(value: str) -> list[str]:
        with database.reading() as reader:
            return [row.digest for row in manifests.page(reader, ManifestFilter(labels=(("team", value),))).items]

    database.change("label", ME, lambda change: statements.put(change, first))
    assert (listed("red"), listed("blue")) == ([subject], [])
    database.change("label", ME, lambda change: statements.put(change, second))
    assert (listed("red"), listed("blue")) == ([], [subject])
