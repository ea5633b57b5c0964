"""Generations of a channel: publish appends one, rollback appends another that carries an earlier tuple."""

from __future__ import annotations

from collections.abc import Sequence

from pydantic import ValidationError

from registry.db import Change, Reader, channels, manifests
from registry.errors import NotFoundError, Problem, UsageProblemError
from registry.service import policies, resolve, webhooks
from registry.service.cache import kv_identity
from registry.service.context import Context
from registry.service.results import ChannelPage, GenerationPage, Published
from schemas.digests import Digest
from schemas.names import check_name
from schemas.publication import PublicationManifest


def publish(
    context: Context, channel: str, refs: Sequence[str], *, expect: int | None = None, reason: str = "release"
) -> Published:
    """Append a generation that serves these artifacts, in this order, after checking their bytes.

    Raises:
        StaleHeadError: the channel's head is not `expect` (0: no generation yet).
        DigestMismatchError: the bytes of an artifact are damaged; nothing is published.
    """
    check_name(channel)
    context.require("publish", channel)
    if not refs:
        raise UsageProblemError(_problem("NOTHING_TO_PUBLISH", "at least one reference", "none", "Name what to serve."))
    with context.database.reading() as reader:
        artifacts = tuple(resolve.digest_of(reader, ref) for ref in refs)
        if len(set(artifacts)) != len(artifacts):
            hint = "Name each artifact once."
            raise UsageProblemError(_problem("ARTIFACT_TWICE", "each artifact once", ", ".join(refs), hint))
        resolve.refuse_yanked(reader, artifacts)
    _verify_bytes(context, artifacts)

    def work(change: Change) -> Published:
        policies.require(change, channel, artifacts)
        return _append(change, channel, artifacts, reason, restored=None, expect=expect)

    return context.conclude("channel.publish", work)


def rollback(
    context: Context,
    channel: str,
    *,
    to: int | None = None,
    expect: int | None = None,
    reason: str = "rollback",
) -> Published:
    """Append a generation with the tuple of an earlier one: by default the one before the head.

    Stored bytes are pointed at again; nothing is unmerged (docs/concepts.md, "Rollback").
    """
    check_name(channel)
    context.require("publish", channel)
    with context.database.reading() as reader:
        artifacts = channels.at(reader, channel, _target(reader, channel, to)).artifacts
    _verify_bytes(context, artifacts)

    def work(change: Change) -> Published:
        target = _target(change, channel, to)
        restored = channels.at(change, channel, target).artifacts
        return _append(change, channel, restored, reason, restored=target, expect=expect)

    return context.conclude("channel.rollback", work)


def history(context: Context, channel: str, after: str | None = None, limit: int = 50) -> tuple[Published, ...]:
    """Generations, newest first."""
    return generations(context, channel, after, limit).items


def generations(context: Context, channel: str, after: str | None = None, limit: int = 50) -> GenerationPage:
    """A page of a channel's generations, newest first, and its head."""
    check_name(channel)
    with context.database.reading() as reader:
        head = channels.at_head(reader, channel).number
        page = channels.history(reader, channel, after, limit)
        items = tuple(published(reader, row.publication, live=row.number == head) for row in page.items)
        return GenerationPage(head=head, items=items, next=page.next)


def generation(context: Context, channel: str, number: int) -> Published:
    """One generation. Raises NotFoundError `CHANNEL_UNKNOWN`, `GENERATION_UNKNOWN`."""
    check_name(channel)
    with context.database.reading() as reader:
        row = channels.at(reader, channel, number)
        return published(reader, row.publication, live=channels.at_head(reader, channel).number == number)


def ls(context: Context, after: str | None = None, limit: int = 50) -> ChannelPage:
    """A page of channels by name: the head of each."""
    with context.database.reading() as reader:
        page = channels.page(reader, after, limit)
        return ChannelPage(
            items=tuple(published(reader, row.publication, live=True) for row in page.items), next=page.next
        )


def published(reader: Reader, digest: Digest, *, live: bool) -> Published:
    """One generation as people see it."""
    manifest = manifests.load(reader, digest, PublicationManifest)
    return Published(
        channel=manifest.channel,
        generation=manifest.generation,
        publication=digest,
        artifacts=manifest.artifacts,
        refs=tuple((resolve.names_of(reader, artifact) or (artifact,))[0] for artifact in manifest.artifacts),
        previous=manifest.previous,
        reason=manifest.reason,
        restored=manifest.restored,
        kv_identity=manifest.kv_identity,
        live=live,
    )


def _append(
    change: Change,
    channel: str,
    artifacts: tuple[Digest, ...],
    reason: str,
    *,
    restored: int | None,
    expect: int | None,
) -> Published:
    head = channels.head(change, channel)
    number = 1 if head is None else head.number + 1
    try:
        publication = PublicationManifest(
            channel=channel,
            generation=number,
            artifacts=artifacts,
            previous=None if head is None else head.publication,
            reason=reason,
            restored=restored,
            kv_identity=kv_identity(change, channel, number, artifacts).digest,
        )
    except ValidationError as error:
        # Everything else in it comes from this registry.
        hint = "Write a short code such as release, hotfix or bad_answers."
        raise UsageProblemError(
            _problem("REASON_INVALID", "1-64 of a-z 0-9 _ -, starting with a letter", repr(reason)[:120], hint)
        ) from error
    channels.append(change, publication, expect)
    made = published(change, publication.digest, live=True)
    webhooks.tell(change, made)
    return made


def _verify_bytes(context: Context, artifacts: tuple[Digest, ...]) -> None:
    """Re-hash every blob an artifact's tensors live in; a damaged or missing one stops the publication."""
    with context.database.reading() as reader:
        parts = [ref for digest in artifacts for ref in resolve.parts_of(reader, digest)]
        held = resolve.blobs_of(context, reader, parts)
    for blob in sorted(held):
        context.store.verify(blob)


def _target(reader: Reader, channel: str, to: int | None) -> int:
    head = channels.head(reader, channel)
    if head is None:
        raise NotFoundError(_unknown(channel))
    if to is not None:
        if to >= head.number:
            hint = "Name an earlier generation; `registry history` lists them."
            raise UsageProblemError(_problem("NOT_AN_EARLIER_GENERATION", f"below g{head.number}", f"g{to}", hint))
        return to
    if head.number == 1:
        hint = "The first generation has nothing before it; publish another artifact."
        raise NotFoundError(_problem("NOTHING_TO_ROLL_BACK_TO", "a generation before g1", "none", hint))
    return head.number - 1


def _unknown(channel: str) -> Problem:
    return _problem("CHANNEL_UNKNOWN", "a channel with a generation", channel, "Publish to it first.")


def _problem(code: str, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, expected=expected, observed=observed, hint=hint)
