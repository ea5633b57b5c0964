"""What codes and recorded failures mean."""

from __future__ import annotations

from typing import Annotated, Any

from fastapi import APIRouter, Path

from registry.api.auth import Guarded, Reading
from registry.service.explain import explain, failure
from schemas.catalogue import Failure, Family, failures

router = APIRouter(prefix="/v1", route_class=Guarded, tags=["explanations"])


@router.get("/failures")
def get_failures(_context: Reading, family: Family | None = None) -> tuple[Failure, ...]:
    """The failure catalogue: what breaks, what notices it, who repairs it, what stays unproven after the repair."""
    return tuple(item for item in failures() if family in (None, item.family))


@router.get("/failures/{failure_id}")
def get_failure(_context: Reading, failure_id: Annotated[str, Path(examples=["nf4_codes_trained"])]) -> Failure:
    """One failure of the catalogue."""
    return failure(failure_id)


@router.get("/explanations/{code}")
def get_explanation(_context: Reading, code: Annotated[str, Path(examples=["YANKED"])]) -> dict[str, Any]:
    """What a code of a finding or problem, or a failure, means, and how it is repaired."""
    return explain(code)
