"""Adapters on bases with conditional compute: what the routes of a base mean for who is added to it (C 0x07, 0x08)."""

from __future__ import annotations

from collections.abc import Iterator

from schemas.compute import ComputeContractManifest
from schemas.decision import Finding
from validators.context import Context, Member, finding


def contracts(context: Context) -> Iterator[Finding]:
    """Same contracts on both sides: shapes agree across them, functions do not."""
    ours = _of(context.base.compute_contracts)
    for member in context.members:
        theirs = _of(member.base.compute_contracts)
        if theirs != ours and not _is_dense_parent(ours, member):
            path = ("base", "compute_contracts")
            yield finding("BASE_CONTRACT_DIFFERS", member.digest, path, _methods(ours), _methods(theirs))


def lifts(context: Context) -> Iterator[Finding]:
    """An adapter of the dense parent is none of the cloned experts unless the base records the lift (C 0x07D)."""
    ours = _of(context.base.compute_contracts)
    for member in context.members:
        if _is_dense_parent(ours, member):
            path = ("base", "compute_contracts")
            yield finding("CLONED_EXPERTS_NOT_LIFTED", member.digest, path, "a recorded lift", "none")


def route_program(context: Context) -> Iterator[Finding]:
    """Updates of a router, predictor or projector give the base other routes."""
    touched = {module for contract in _of(context.base.compute_contracts) for module in contract.route_modules}
    for profile, digests in context.factors.items():
        if profile.site[0] in touched:
            for digest in digests:
                yield finding("ROUTE_PROGRAM_TOUCHED", digest, profile.path, "no routing module", profile.site[0])


def hard_routes(context: Context) -> Iterator[Finding]:
    """On a base that decides hard, even an exact sum of weights promises no equal function (C 0x08G)."""
    ours = _of(context.base.compute_contracts)
    if ours:
        yield finding("HARD_ROUTES_NOT_PROMISED", "spec", ("base", "compute_contracts"), "none", _methods(ours))


def _of(value: str | tuple[ComputeContractManifest, ...]) -> tuple[ComputeContractManifest, ...]:
    return () if isinstance(value, str) else value


def _is_dense_parent(ours: tuple[ComputeContractManifest, ...], member: Member) -> bool:
    lineages = [contract.lineage for contract in ours]
    return any(
        not isinstance(lineage, str) and lineage.parent == member.adapter.base and lineage.lift == "none"
        for lineage in lineages
    )


def _methods(found: tuple[ComputeContractManifest, ...]) -> str:
    return ", ".join(f"{contract.method} {contract.digest[:19]}" for contract in found) or "none"
