"""What a caller may do: permissions, each whole or only for names and channels that begin with a prefix.

A use case asks `context.require` in its first line; a caller in this process (embedded) may do everything.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Literal, Self, get_args

from registry.errors import NotAllowedError, Problem, UsageProblemError

Permission = Literal["read", "register", "compose", "publish", "admin"]
PERMISSIONS: Final[tuple[Permission, ...]] = get_args(Permission)
_PREFIX: Final = re.compile(r"[a-z0-9][a-z0-9._-]{0,95}")


@dataclass(frozen=True)
class Scope:
    """A permission, for everything or for what begins with `prefix`; written ``publish`` or ``publish:prod-``."""

    permission: Permission
    prefix: str = ""

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read a scope.

        Raises:
            UsageProblemError: `SCOPE_INVALID`; a prefix that no name can begin with would allow nothing, silently.
        """
        permission, colon, prefix = text.partition(":")
        if permission not in PERMISSIONS or (colon and not _PREFIX.fullmatch(prefix)):
            raise UsageProblemError(
                Problem(
                    code="SCOPE_INVALID",
                    path=("allow",),
                    expected=f"one of {', '.join(PERMISSIONS)}, alone or as PERMISSION:PREFIX, the beginning of a name",
                    observed=repr(text)[:120],
                    hint="Write publish for every channel, publish:prod- for those that begin with prod-.",
                )
            )
        return cls(permission, prefix)

    def __str__(self) -> str:
        return f"{self.permission}:{self.prefix}" if self.prefix else self.permission


@dataclass(frozen=True)
class Grants:
    """The scopes of a token; `admin` includes every other permission, within its own prefix."""

    scopes: tuple[Scope, ...]

    def of(self, permission: Permission) -> tuple[Scope, ...]:
        """The scopes that carry a permission."""
        return tuple(scope for scope in self.scopes if scope.permission in (permission, "admin"))

    def has(self, permission: Permission) -> bool:
        """Whether it is allowed for anything at all."""
        return bool(self.of(permission))

    def covers(self, permission: Permission, subject: str) -> bool:
        """Whether it is allowed for a name or channel."""
        return any(subject.startswith(scope.prefix) for scope in self.of(permission))

    def require(self, permission: Permission, *subjects: str) -> None:
        """Pass when each subject (a name or a channel) is within a scope; without any, only a whole permission passes.

        Raises:
            NotAllowedError: `PERMISSION_MISSING`, naming the scope that is needed.
        """
        missing = next((name for name in subjects or ("",) if not self.covers(permission, name)), None)
        if missing is not None:
            raise self.lacking(f"{permission}:{missing}" if missing else f"{permission}, without a prefix")

    def lacking(self, needed: str) -> NotAllowedError:
        """The refusal that says which scope is missing."""
        return NotAllowedError(
            Problem(
                code="PERMISSION_MISSING",
                expected=f"a token that allows {needed}",
                observed=", ".join(map(str, self.scopes)) or "one that allows nothing",
                hint="Ask an administrator for a token that has it (`registry token create NAME --allow …`).",
            )
        )


EVERYTHING: Final = Grants((Scope("admin"),))
"""What a registry in the caller's own process allows."""
