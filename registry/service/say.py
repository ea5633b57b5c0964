"""Statements about a thing, and aliases: nothing said ever renames it."""

from __future__ import annotations

from typing import Annotated, Final

from pydantic import Field, TypeAdapter, ValidationError

from registry.db import Change, aliases, names, refs, statements
from registry.errors import Problem, RefusedError, UsageProblemError
from registry.service import resolve
from registry.service.context import Context
from registry.service.results import Aliased, Said
from schemas.canonical import JsonObject, canonical_bytes
from schemas.digests import Digest
from schemas.model import problems_of
from schemas.names import NameRef, check_alias, parse_ref
from schemas.publication import StatementManifest, Topic

Body = dict[str, str | int | float | bool | tuple[str, ...] | None]
_FIELDS: Final[TypeAdapter[Body]] = TypeAdapter(Annotated[Body, Field(strict=True, min_length=1, max_length=256)])


def yank(context: Context, ref: str, reason: str, *, undo: bool = False) -> Said:
    """Say that nothing new may be built on or published from it; what is live stays live."""
    return _say(context, ref, "yank", {"yanked": not undo, "reason": reason})


def label(context: Context, ref: str, labels: dict[str, str | None]) -> Said:
    """Set labels; a null value removes one."""
    return _say(context, ref, "label", dict(labels))


def attest(context: Context, ref: str, body: Body) -> Said:
    """Say something in fields of one's own: who tested it, where it was trained, what it may be used for."""
    return _say(context, ref, "note", body)


def fields(document: JsonObject) -> Body:
    """A document as the fields of a statement: texts, numbers, truth values, nulls and lists of texts.

    Raises:
        RefusedError: `STATEMENT_INVALID`, one problem a field.
    """
    try:
        return _FIELDS.validate_json(canonical_bytes(document))
    except ValidationError as error:
        raise RefusedError(*problems_of(error, "STATEMENT_INVALID")) from error


def alias(context: Context, ref: str, name: str) -> Aliased:
    """Point an alias at a version; the event is appended, the newest one counts."""
    check_alias(name)
    parsed = parse_ref(ref)
    if not isinstance(parsed, NameRef):
        raise UsageProblemError(
            Problem(
                code="ALIAS_NEEDS_A_VERSION",
                expected="NAME or NAME@VERSION",
                observed=ref,
                hint="An alias belongs to a name; write the name and the version it should mean.",
            )
        )

    context.require("register", parsed.name)

    def work(change: Change) -> Aliased:
        digest = refs.resolve(change, parsed)
        version = next(row.version for row in names.of(change, digest) if row.name == parsed.name)
        event = aliases.move(change, parsed.name, name, version)
        return Aliased(name=event.name, alias=event.alias, version=event.version, event=event.sequence)

    return context.database.change("alias.move", context.principal, work)


def _say(context: Context, ref: str, topic: Topic, body: Body) -> Said:
    def work(change: Change) -> Said:
        subject = resolve.digest_of(change, ref)
        # it speaks of the content, so of every name the content has
        context.require("register", *sorted(resolve.bare_names_of(change, subject)))
        before = statements.newest(change, subject, topic)
        previous = None if before is None else before.digest
        statement = _statement(topic, subject, body, context.principal, previous)
        statements.put(change, statement)
        return Said(subject=subject, topic=topic, statement=statement.digest)

    return context.database.change(f"statement.{topic}", context.principal, work)


def _statement(topic: Topic, subject: Digest, body: Body, author: str, previous: Digest | None) -> StatementManifest:
    try:
        return StatementManifest(topic=topic, subject=subject, body=body, author=author, previous=previous)
    except ValidationError as error:
        raise RefusedError(*problems_of(error, "STATEMENT_INVALID")) from error
