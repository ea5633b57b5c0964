"""Bearer tokens: who is calling, and whether that is allowed."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Annotated

from fastapi import Depends, Request
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from registry.errors import NotAllowedError, NotAuthenticatedError, Problem
from registry.service import tokens
from registry.service.context import Context
from registry.service.tokens import Permission

_bearer = HTTPBearer(auto_error=False, description="A token made by `registry token create`.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


def allowed(permission: Permission) -> Callable[[Request, Credentials], Context]:
    """A dependency: the context under the caller's name, when the token carries the permission."""

    def check(request: Request, credentials: Credentials) -> Context:
        context: Context = request.app.state.context
        if credentials is None:
            if permission == "read" and request.app.state.open_reads:
                return replace(context, principal="anonymous")
            raise NotAuthenticatedError(_missing(permission))
        known = tokens.authenticate(context, credentials.credentials)
        if permission not in known.permissions and "admin" not in known.permissions:
            raise NotAllowedError(_lacking(permission))
        return replace(context, principal=known.principal)

    return check


Reading = Annotated[Context, Depends(allowed("read"))]
Registering = Annotated[Context, Depends(allowed("register"))]
Composing = Annotated[Context, Depends(allowed("compose"))]
Publishing = Annotated[Context, Depends(allowed("publish"))]
Administering = Annotated[Context, Depends(allowed("admin"))]


def _missing(permission: str) -> Problem:
    return Problem(
        code="TOKEN_MISSING",
        expected=f"Authorization: Bearer TOKEN with permission {permission}",
        observed="no token",
        hint="Make one with `registry token create NAME --allow " + permission + "`.",
    )


def _lacking(permission: str) -> Problem:
    return Problem(
        code="PERMISSION_MISSING",
        expected=f"permission {permission}",
        observed="a token without it",
        hint="Ask an administrator for a token that has it.",
    )
