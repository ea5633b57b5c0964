"""What an oracle can refuse or report, each with typed fields."""

from collections.abc import Sequence


class OracleError(Exception):
    """Base of every error of this room."""


class FixtureRefusedError(OracleError):
    """The typed contract of an oracle refuses its input before any number is compared."""

    def __init__(self, where: str, found: object, expected: str) -> None:
        super().__init__(f"{where}: found {found}, expected {expected}")
        self.where = where
        self.found = found
        self.expected = expected


class UnknownOracleError(OracleError):
    """No table of this room lists the name."""

    def __init__(self, name: str, known: Sequence[str]) -> None:
        super().__init__(f"no oracle is called {name!r}; listed are: {', '.join(known)}")
        self.name = name
        self.known = tuple(known)


class OracleTableError(OracleError):
    """A table line and the module it names disagree."""

    def __init__(self, name: str, module: str, reason: str) -> None:
        super().__init__(f"table line {name!r} -> {module}: {reason}")
        self.name = name
        self.module = module
        self.reason = reason


class OracleDriftError(OracleError):
    """A replay differs from the locked one; `changed` names which of fixture, program, report and semantic."""

    def __init__(self, name: str, changed: Sequence[str]) -> None:
        super().__init__(
            f"oracle {name!r} drifted in: {', '.join(changed)}; restore those files, or accept the change "
            f"deliberately with `python -m oracles.lock {name}`"
        )
        self.name = name
        self.changed = tuple(changed)
