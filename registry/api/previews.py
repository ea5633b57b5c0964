"""What a spec would come to: decided on like any other, and nothing stored."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Query

from registry.api.auth import Composing, Guarded
from registry.api.bodies import ReleaseBody, SpecBody
from registry.service import admit, releases, specs
from registry.service.results import Admitted

router = APIRouter(prefix="/v1/previews", route_class=Guarded, tags=["composition"])
Plan = Annotated[bool, Query(description="Also cost the work of what would be admitted.")]


@router.post("/compositions")
def preview_composition(context: Composing, spec: SpecBody, plan: Plan = False) -> Admitted:
    """The decision on a composition, also one that refuses; look at its `outcome`."""
    return admit.admit(context, specs.complete(spec), dry_run=True, plan=plan)


@router.post("/releases")
def preview_release(context: Composing, spec: ReleaseBody) -> Admitted:
    """The decision on a release, also one that refuses; look at its `outcome`."""
    return releases.release(context, spec, dry_run=True)
