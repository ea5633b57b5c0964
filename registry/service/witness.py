"""Replaying the oracles: executable proofs of the algebra a composition relies on."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

from oracles.errors import OracleDriftError, UnknownOracleError
from oracles.mutation import Closure, close_mutations
from oracles.registry import load, names
from oracles.replay import Replay, replay
from registry.errors import DigestMismatchError, NotFoundError, Problem
from registry.service.results import OracleListed, OracleRun
from schemas.catalogue.methods import method
from schemas.digests import Digest

METHOD_WITNESS: Final = "composition_merge"
"""The composition's own witness; those of the members' families stand in the catalogue."""


def listed() -> tuple[OracleListed, ...]:
    """Every oracle and what it proves."""
    return tuple(
        OracleListed(name=name, source=oracle.document, sections=tuple(oracle.sections), proves=tuple(oracle.proves))
        for name in names()
        for oracle in [load(name)]
    )


def run(wanted: Sequence[str], *, mutations: bool = False) -> tuple[OracleRun, ...]:
    """Replay oracles (all when none is named), with `mutations` also their mutation closure.

    Raises:
        NotFoundError: `ORACLE_UNKNOWN`.
        DigestMismatchError: `ORACLE_DRIFT`, naming which of fixture, program, semantic and report changed.
    """
    return tuple(_run(name, mutations) for name in wanted or names())


def report_bytes(name: str) -> bytes:
    """The report of a replay that agrees with its lock."""
    return _replayed(name).report.to_bytes()


def check(name: str, report: bytes) -> OracleRun:
    """Replay an oracle and hold a kept report against it.

    Raises:
        DigestMismatchError: `ORACLE_DRIFT`, naming which of fixture, program, semantic and report changed.
    """
    return _result(name, _replayed(name, report), None)


def reports(families: Iterable[str]) -> tuple[Digest, ...]:
    """Replay what a composition of these families depends on; the semantic digests its manifest binds."""
    rows = (method(family) for family in families)
    wanted = {METHOD_WITNESS} | {row.oracle for row in rows if row is not None and row.oracle is not None}
    return tuple(sorted(found.semantic for found in run(sorted(wanted))))


def _run(name: str, mutations: bool) -> OracleRun:
    found = _replayed(name)
    return _result(name, found, close_mutations(load(name)) if mutations else None)


def _replayed(name: str, report: bytes | None = None) -> Replay:
    try:
        return replay(name, report_file=report)
    except UnknownOracleError as error:
        raise NotFoundError(_unknown(name)) from error
    except OracleDriftError as error:
        raise DigestMismatchError(_drift(error)) from error


def _result(name: str, found: Replay, closure: Closure | None) -> OracleRun:
    report = found.report
    return OracleRun(
        name=name,
        checks=len(report.checks),
        failed=tuple(check.name for check in report.failed),
        worst_error=report.worst_error,
        semantic=found.binding.semantic,
        report=found.binding.report,
        mutations=None if closure is None else closure.generated,
        rejected=None if closure is None else closure.rejected,
        without_role=None if closure is None else closure.without_role,
        seconds=round(report.seconds, 6),
    )


def _drift(error: OracleDriftError) -> Problem:
    return Problem(
        code="ORACLE_DRIFT",
        path=(error.name,),
        expected="fixture, program and semantic digests of the lock",
        observed=f"another {', '.join(error.changed)}",
        hint=f"Restore these files; `python -m oracles.lock {error.name}` accepts a change on purpose.",
    )


def _unknown(name: str) -> Problem:
    hint = "`registry oracle list` names them all."
    return Problem(code="ORACLE_UNKNOWN", path=(name,), expected="the name of an oracle", observed=name, hint=hint)
