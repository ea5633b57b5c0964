"""The report of an oracle: what was checked, what came out, and what it may not be cited for.

Two digests stay apart. The semantic digest covers check names, verdicts and values at their printed digits and is the
same on every machine; the file digest covers the report's bytes, which carry measured errors.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

from oracles.checks import Check, Value, worst_error
from oracles.model import Oracle
from oracles.source import program_modules, source_bytes
from schemas.canonical import JsonObject, JsonValue, canonical_bytes
from schemas.digests import Digest, blob_digest, manifest_digest

CLAIMS = (
    "training_reproduced",
    "checkpoint",
    "autograd",
    "gpu_kernel",
    "scheduler",
    "latency",
    "throughput",
    "quality",
    "benchmark",
    "ranking",
)
"""The closed claim ceiling; an oracle makes none of these claims."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The outcome of one oracle; `seconds` is measured, and part of no digest."""

    oracle: Oracle
    checks: tuple[Check, ...]
    fixture: Digest
    program: Digest
    seconds: float = field(default=0.0, compare=False)

    @property
    def passed(self) -> bool:
        """Every check holds (a report without a check proves nothing and fails)."""
        return bool(self.checks) and all(check.passed for check in self.checks)

    @property
    def failed(self) -> tuple[Check, ...]:
        """The checks that do not hold."""
        return tuple(check for check in self.checks if not check.passed)

    @property
    def worst_error(self) -> float:
        """The largest measured error, finite differences included."""
        return worst_error(self.checks)

    @property
    def disagreements(self) -> tuple[Check, ...]:
        """Checks where the document's own statement fails when executed; they keep the true value."""
        return tuple(check for check in self.checks if check.stated is not None)

    def semantic(self) -> Digest:
        """Digest of names, verdicts and printed values; equal on every machine."""
        contract: JsonObject = {
            "oracle": self.oracle.name,
            "document": self.oracle.document,
            "sections": list(self.oracle.sections),
            "checks": [_semantic_row(check) for check in self.checks],
            "claims": dict.fromkeys(CLAIMS, False),
        }
        return manifest_digest("oracle_contract", canonical_bytes(contract))

    def document(self) -> JsonObject:
        """The report as JSON."""
        return {
            "kind": "oracle_report",
            "schema": 1,
            "oracle": self.oracle.name,
            "document": self.oracle.document,
            "sections": list(self.oracle.sections),
            "fixture": self.fixture,
            "program": self.program,
            "semantic": self.semantic(),
            "passed": self.passed,
            "worst_error": self.worst_error,
            "proves": list(self.oracle.proves),
            "does_not_prove": list(self.oracle.does_not_prove),
            "own_fixture_fields": list(self.oracle.own),
            "document_fails": [check.name for check in self.disagreements],
            "claims": dict.fromkeys(CLAIMS, False),
            "checks": [_row(check) for check in self.checks],
        }

    def to_bytes(self) -> bytes:
        """The report file: canonical JSON."""
        return canonical_bytes(self.document())

    def digest(self) -> Digest:
        """Digest of the report file."""
        return blob_digest(self.to_bytes())


def program_digest(module: str) -> Digest:
    """One digest over the source bytes of the oracle's module and of every module of this room it imports."""
    sources: JsonObject = {name: blob_digest(source_bytes(name)) for name in program_modules(module)}
    return manifest_digest("oracle_program", canonical_bytes(sources))


def build(oracle: Oracle, checks: Sequence[Check], fixture: bytes, seconds: float) -> Report:
    """Bind the checks of one run to the bytes of its fixture and program."""
    return Report(
        oracle=oracle,
        checks=tuple(checks),
        fixture=blob_digest(fixture),
        program=program_digest(oracle.module),
        seconds=seconds,
    )


def _plain(value: Value) -> JsonValue:
    if isinstance(value, tuple):
        return [_plain(entry) for entry in value]
    return value + 0.0 if isinstance(value, float) else value


def _semantic_row(check: Check) -> JsonObject:
    return {"name": check.name, "kind": check.kind, "passed": check.passed, "printed": _plain(check.printed)}


def _row(check: Check) -> JsonObject:
    return {
        "name": check.name,
        "kind": check.kind,
        "passed": check.passed,
        "value": _plain(check.value),
        "expected": _plain(check.expected),
        "tolerance": check.tolerance,
        "digits": check.digits,
        "source": check.source,
        "stated": _plain(check.stated),
    }
