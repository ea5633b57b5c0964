"""`python -m oracles.lock [NAME ...]`: accept the present state of the named oracles, or of all, as the locked one."""

import json
import sys
from collections.abc import Sequence
from pathlib import Path

from oracles.registry import names
from oracles.replay import LOCK_FILE, Lock, bind, read_lock
from oracles.report import Report
from oracles.runner import run_all


def updated(lock: Lock, reports: Sequence[Report]) -> Lock:
    """The lock with the bindings of these reports, without names that are no longer listed."""
    fresh = {**lock, **{report.oracle.name: bind(report) for report in reports}}
    return {name: fresh[name] for name in names() if name in fresh}


def write_lock(lock: Lock, path: Path) -> None:
    """Write the lock file, one binding a name."""
    document = {name: binding.model_dump() for name, binding in lock.items()}
    path.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")


def main(arguments: Sequence[str]) -> int:
    """Lock the named oracles; an oracle with a failing check is never locked."""
    reports = tuple(run_all(arguments or names()))
    failing = [f"{r.oracle.name}: {check.name}" for r in reports for check in r.failed]
    if failing:
        sys.stderr.write("not locked, these checks fail:\n" + "\n".join(failing) + "\n")
        return 1
    write_lock(updated(read_lock(), reports), Path(__file__).with_name(LOCK_FILE))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
