"""Alive or not."""

from __future__ import annotations

from fastapi import APIRouter

from registry.api.bodies import HealthOut

router = APIRouter(tags=["operations"])


@router.get("/healthz")
def healthz() -> HealthOut:
    """The process answers."""
    return HealthOut(status="ok")
