"""Compute contracts: registering one, and telling how two differ."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final

from registry.db import Reader, manifests
from registry.errors import NotFoundError
from registry.service import documents, resolve
from registry.service.context import Context
from registry.service.results import Added, ContractDifference
from schemas.canonical import JsonObject
from schemas.compute import ComputeContract, ComputeContractManifest, built_in
from schemas.decision import Finding
from validators.compute import compare, judge_contract

REFERENCES: Final = frozenset({"parent", "lift"})


def add_contract(context: Context, document: JsonObject, name: str) -> Added:
    """Register a compute contract. `contract` is a mapping of the 21 fields, or the name of a built-in one."""
    found = _completed(documents.resolved(context, document, REFERENCES))
    return documents.add_document(context, found, name, ComputeContractManifest, _judge)


def diff(context: Context, left: str, right: str) -> ContractDifference:
    """Fields in which two contracts differ, built-in or registered; those one side does not know stand apart."""
    one, other = _contract(context, left), _contract(context, right)
    found = compare(one, other)
    return ContractDifference(left=left, right=right, **dict(found))


def contract_of(reader: Reader, ref: str) -> ComputeContractManifest:
    """A registered contract by reference."""
    return manifests.load(reader, resolve.digest_of(reader, ref), ComputeContractManifest)


def _contract(context: Context, name: str) -> ComputeContract:
    known = built_in().get(name)
    if known is not None:
        return known
    try:
        with context.database.reading() as reader:
            return contract_of(reader, name).contract
    except NotFoundError as error:
        if error.code != "NAME_UNKNOWN":
            raise
        hint = f"Built-in contracts are {', '.join(built_in())}; `registry ls compute-contracts` lists the others."
        raise NotFoundError(*(replace(problem, hint=hint) for problem in error.problems)) from error


def _judge(_: Reader, manifest: ComputeContractManifest) -> Iterable[Finding]:
    return judge_contract(manifest)


def _completed(document: JsonObject) -> JsonObject:
    """The document with a built-in contract written out; `method` says whose contract it is."""
    named = document.get("contract")
    if isinstance(named, str) and named in built_in():
        return {"method": named} | document | {"contract": built_in()[named].document()}
    return document
