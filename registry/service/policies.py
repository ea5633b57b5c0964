"""What a channel asks of what is published to it, and whether something has it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from registry.db import Change, Reader, evidence, manifests, policies
from registry.errors import Problem, RefusedError
from registry.service import resolve
from registry.service.context import Context
from schemas.canonical import JsonObject
from schemas.digests import Digest
from schemas.evaluation import EvaluationManifest
from schemas.model import validate
from schemas.names import check_name
from schemas.publication import ChannelPolicy
from validators.evaluations import verdict

_LEVELS: Final = ("any", "declared", "structural", "content")
"""Evidence of a base, from nothing asked to every tensor hashed."""


def show(context: Context, channel: str) -> ChannelPolicy:
    """A channel's policy; one that was never set asks for nothing."""
    check_name(channel)
    with context.database.reading() as reader:
        return _of(reader, channel)


def put(context: Context, channel: str, document: JsonObject) -> ChannelPolicy:
    """Give a channel a policy; what is live stays live, the next publication is held to it."""
    check_name(channel)
    context.require("admin", channel)
    policy = validate(ChannelPolicy, document)

    def work(change: Change) -> None:
        if _of(change, channel) != policy:
            policies.put(change, channel, policy.document())
            change.note(None, {"channel": channel})

    context.database.change("channel.policy", context.principal, work)
    return policy


def require(reader: Reader, channel: str, artifacts: tuple[Digest, ...]) -> None:
    """Pass when every artifact has what the channel asks for.

    Raises:
        RefusedError: `POLICY_EVIDENCE` or `POLICY_EVALUATION`, one problem for each artifact that lacks it.
    """
    policy = _of(reader, channel)
    problems = [found for artifact in artifacts for found in _lacking(reader, policy, artifact)]
    if problems:
        raise RefusedError(*problems)


def _lacking(reader: Reader, policy: ChannelPolicy, artifact: Digest) -> Iterator[Problem]:
    bases = {adapter.base for adapter in resolve.adapters_of(reader, artifact)}
    for base in sorted(bases):
        level = evidence.level(reader, base, "evidence") or "any"
        if _LEVELS.index(level) < _LEVELS.index(policy.evidence):
            hint = "Register the base again with more of it read."
            yield _problem("POLICY_EVIDENCE", artifact, f"a base of evidence {policy.evidence}", level, hint)
    if policy.evaluation and not _passed(reader, artifact):
        hint = "Register an evaluation that selected it and that it passed on the held-out split."
        yield _problem("POLICY_EVALUATION", artifact, "a passed evaluation", "none", hint)


def _passed(reader: Reader, artifact: Digest) -> bool:
    found = (manifests.load(reader, one, EvaluationManifest) for one in policies.evaluations_of(reader, artifact))
    return any(verdict(evaluation, artifact) == "passed" for evaluation in found)


def _of(reader: Reader, channel: str) -> ChannelPolicy:
    body = policies.current(reader, channel)
    return ChannelPolicy() if body is None else validate(ChannelPolicy, body)


def _problem(code: str, artifact: Digest, expected: str, observed: str, hint: str) -> Problem:
    return Problem(code=code, path=(artifact,), expected=expected, observed=observed, hint=hint)
