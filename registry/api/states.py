"""Registering and comparing what surrounds adapters: compute contracts."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter, Response
from pydantic import BaseModel

from registry.api.auth import Reading, Registering
from registry.service import contracts
from registry.service.results import Added, ContractDifference

router = APIRouter(prefix="/v1", tags=["states"])


class DocumentIn(BaseModel):
    """A document as it is written by hand, and the name to register it under."""

    name: str
    document: dict[str, Any]


@router.post("/compute-contracts", status_code=201)
def post_compute_contract(context: Registering, body: DocumentIn, response: Response) -> Added:
    """Register a compute contract. 200 when it is already held."""
    return answer(response, contracts.add_contract(context, body.document, body.name))


@router.get("/compute-contracts/diff")
def get_contract_diff(context: Reading, left: str, right: str) -> ContractDifference:
    """Fields in which two contracts differ, built-in or registered."""
    return contracts.diff(context, left, right)


def answer(response: Response, added: Added) -> Added:
    """What was registered, with its digest as ETag; 200 instead of 201 when it was there."""
    response.headers["ETag"] = f'"{added.digest}"'
    if not added.created:
        response.status_code = 200
    return added
