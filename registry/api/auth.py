"""Bearer tokens: who is calling, and whether that is allowed.

A route asks for a permission here, before a byte of its body is read; the use case then asks the context whether it
holds for the name or channel at hand (`registry.service.grants`).
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import dataclass, replace
from typing import Annotated, Any, Final

from fastapi import Depends, Request, Response
from fastapi.concurrency import run_in_threadpool
from fastapi.routing import APIRoute
from fastapi.security import HTTPAuthorizationCredentials, HTTPBearer

from registry.errors import NotAuthenticatedError, Problem
from registry.service import subjects, tokens
from registry.service.context import Context
from registry.service.grants import Grants, Permission, Scope

ANONYMOUS: Final = Grants((Scope("read"),))
_SAFE: Final = ("GET", "HEAD")
_bearer = HTTPBearer(auto_error=False, description="A token made by `registry token create`.")
Credentials = Annotated[HTTPAuthorizationCredentials | None, Depends(_bearer)]


@dataclass(frozen=True)
class Allowed:
    """A dependency: the context under the caller's name and grants, when the token carries the permission."""

    permission: Permission

    async def __call__(self, request: Request, _described: Credentials) -> Context:
        """What `Guarded` found before the body was read."""
        found: Context = request.state.caller
        return found

    def check(self, request: Request, credentials: HTTPAuthorizationCredentials | None) -> Context:
        """Raises NotAuthenticatedError or NotAllowedError."""
        context = _called(request, credentials, self.permission)
        request.state.principal = context.principal
        if self.permission == "read":
            _may_read(context, request)
        elif not context.grants.has(self.permission):
            raise context.grants.lacking(self.permission)
        return context


class Guarded(APIRoute):
    """A route that asks who is calling, and whether that is allowed, before it reads any of the body."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """See `APIRoute`."""
        handle = super().get_route_handler()
        asked = [needed.call for needed in self.dependant.dependencies if isinstance(needed.call, Allowed)]

        async def guarded(request: Request) -> Response:
            for allowed in asked:
                credentials = await _bearer(request)
                request.state.caller = await run_in_threadpool(allowed.check, request, credentials)
            return await handle(request)

        return guarded


Reading = Annotated[Context, Depends(Allowed("read"))]
Registering = Annotated[Context, Depends(Allowed("register"))]
Composing = Annotated[Context, Depends(Allowed("compose"))]
Publishing = Annotated[Context, Depends(Allowed("publish"))]
Administering = Annotated[Context, Depends(Allowed("admin"))]


def _called(request: Request, credentials: HTTPAuthorizationCredentials | None, permission: Permission) -> Context:
    context: Context = request.app.state.context
    if credentials is not None:
        known = tokens.authenticate(context, credentials.credentials)
        return replace(context, principal=known.principal, grants=known.grants)
    # asking for an export reads, and yet makes work
    if permission == "read" and request.app.state.open_reads and request.method in _SAFE:
        return replace(context, principal="anonymous", grants=ANONYMOUS)
    raise NotAuthenticatedError(_missing(permission))


def _may_read(context: Context, request: Request) -> None:
    """A whole `read`, one limited to a prefix that something this path names begins with, or the caller's own job."""
    if context.grants.covers("read", ""):
        return
    job = request.path_params.get("job_id")
    if job is not None and subjects.is_own_job(context, job):
        return
    named = subjects.of_path(context, request.url.path, request.path_params, request.query_params)
    if not any(context.grants.covers("read", name) for name in named):
        # a name that the caller did not say itself is not told to it
        said = [name for name in named if name in request.url.path]
        raise context.grants.lacking(f"read:{said[0]}" if said else "read, without a prefix")


def _missing(permission: str) -> Problem:
    return Problem(
        code="TOKEN_MISSING",
        expected=f"Authorization: Bearer TOKEN with permission {permission}",
        observed="no token",
        hint="Make one with `registry token create NAME --allow " + permission + "`.",
    )
