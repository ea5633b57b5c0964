"""Every method of the interface gives the same behind a server as in this process, results and refusals alike."""

from __future__ import annotations

import inspect
import json
from collections.abc import Callable, Iterable
from pathlib import Path
from threading import Event
from typing import Any

import pytest
from pydantic import BaseModel

from registry.client import EmbeddedRegistry, Registry
from registry.client.remote import RemoteRegistry
from registry.db.manifests import ManifestFilter
from registry.errors import ProblemError
from registry.service.bulk import AddedMany
from registry.service.export import Form
from registry.service.results import Added
from registry.service.sync import Watcher
from registry.service.wishes import Wish
from schemas.canonical import JsonObject
from tests.registry.client.conftest import Served, furnish, made_in, settings_in
from tests.routed.documents import contract, state
from tests.support import tiny

Call = Callable[[Registry, Path], Any]
FORM = Form("tiny", "plain-lora")
SPEC = {
    "name": "merged",
    "base": "tiny",
    "method": "cat",
    "space": "delta",
    "members": [{"ref": "one", "weight": 1.0}, {"ref": "two", "weight": -0.5}],
}
TWICE = SPEC | {"members": [{"ref": "one", "weight": 1.0}, {"ref": "one", "weight": 1.0}]}


def _spec(document: dict[str, Any], **changes: Any) -> bytes:
    return json.dumps(document | changes).encode()


def _watch(registry: Registry, folder: Path) -> list[Any]:
    """One round of a watch."""
    stop = Event()
    seen: list[Any] = []

    def switched(synced: Any) -> None:
        seen.append(synced)
        stop.set()

    registry.watch("bot", folder / "watched", FORM, Watcher(switched, seen.append), stop, 0.01)
    return seen


def _lease(registry: Registry, _: Path) -> list[Any]:
    """A lease through its life."""
    lease = registry.acquire_lease("bot", "replica", 60.0)
    held = [registry.renew_lease(lease.id, 90.0), registry.leases_of("replica"), registry.drain("bot")]
    return [lease, *held, registry.release_lease(lease.id)]


def _token(registry: Registry, _: Path) -> list[Any]:
    made = registry.create_token("ci", ("read", "publish:prod-"), expires_s=60.0)
    registry.revoke_token(made.id)
    return [made, [item for item in registry.tokens() if item.principal == "ci"]]


def _webhook(registry: Registry, _: Path) -> list[Any]:
    made = registry.add_webhook("https://hooks.example.org/registry", "prod-")
    found = [made, registry.webhooks(), registry.webhook_deliveries(made.id)]
    registry.remove_webhook(made.id)
    return [*found, registry.webhooks()]


def _state(registry: Registry, _: Path) -> Any:
    base, one = (registry.show(ref).digest for ref in ("tiny", "one"))
    return registry.add_continual_state(state(base, [one], []), "after-one")


def _jobs(registry: Registry, _: Path) -> Any:
    """A server has jobs and a registry here has none: what is the same is how an unknown one is refused."""
    registry.jobs(limit=5)
    return registry.job("0" * 32)


STEPS: dict[str, Call] = {
    "add_adapter again": lambda registry, folder: registry.add_adapter(folder / "one", "tiny", "one"),
    "add_adapter elsewhere": lambda registry, folder: registry.add_adapter(folder / "one", "nobody", "x"),
    "add_adapter no base": lambda registry, folder: registry.add_adapter(folder / "one", "two", "x"),
    "add_adapter missing": lambda registry, folder: registry.add_adapter(folder / "none", "tiny", "x"),
    "add_base": lambda registry, folder: registry.add_base(
        tiny.write_base(folder / "other", tiny.base_tensors(5)), "other", store=True
    ),
    "add_adapters": lambda registry, folder: registry.add_adapters(
        [tiny.write_adapter(folder / f"many-{seed}", seed) for seed in (3, 4)] + [folder / "none"], "tiny"
    ),
    "inspect": lambda registry, folder: registry.inspect(folder / "two", "tiny"),
    "ls": lambda registry, _: registry.ls(ManifestFilter(kind="adapter"), limit=3),
    "show": lambda registry, _: registry.show("one@1"),
    "show nobody": lambda registry, _: registry.show("nobody"),
    "show no reference": lambda registry, _: registry.show("a/b"),
    "diff": lambda registry, _: registry.diff("one", "two"),
    "admit dry": lambda registry, _: registry.admit(_spec(SPEC), dry_run=True),
    "admit plan": lambda registry, _: registry.admit(_spec(SPEC), plan=True),
    "admit": lambda registry, _: registry.admit(_spec(SPEC)),
    "admit again": lambda registry, _: registry.admit(_spec(SPEC)),
    "admit refused": lambda registry, _: registry.admit(_spec(TWICE)),
    "admit unreadable": lambda registry, _: registry.admit(b"just text"),
    "convert": lambda registry, _: registry.convert("one", Wish("cast", "half", store="BF16")),
    "convert again": lambda registry, _: registry.convert("one", Wish("cast", "half", store="BF16")),
    "convert refused": lambda registry, _: registry.convert("one", Wish("compact")),
    "publish": lambda registry, _: registry.publish("bot", ["merged", "two"]),
    "publish on": lambda registry, _: registry.publish("bot", ["one"], expect=1, reason="hotfix"),
    "publish stale": lambda registry, _: registry.publish("bot", ["two"], expect=1),
    "rollback": lambda registry, _: registry.rollback("bot"),
    "rollback nowhere": lambda registry, _: registry.rollback("nobody"),
    "history": lambda registry, _: registry.history("bot"),
    "lineage": lambda registry, _: registry.lineage("one", "down", live=True),
    "cache_identity": lambda registry, _: registry.cache_identity("bot", 2),
    "acquire_lease renew_lease leases_of drain release_lease": _lease,
    "release_lease unknown": lambda registry, _: registry.release_lease("nothing"),
    "set_channel_policy": lambda registry, _: registry.set_channel_policy("bot", {"evidence": "content"}),
    "channel_policy": lambda registry, _: registry.channel_policy("bot"),
    "sync": lambda registry, folder: registry.sync("bot", folder / "served", FORM),
    "sync again": lambda registry, folder: registry.sync("bot", folder / "served", FORM),
    "watch": _watch,
    "export": lambda registry, folder: registry.export("one", folder / "out", Form("tiny")),
    "export over": lambda registry, folder: registry.export("one", folder / "out", Form("tiny")),
    "export named": lambda registry, folder: registry.export("channel:bot@g2", folder, FORM, named=True),
    "export dense": lambda registry, folder: registry.export("one", folder / "dense", Form("tiny", "dense")),
    "ensure": lambda registry, folder: registry.ensure("channel:bot@g2", folder / "kept", FORM),
    "ensure again": lambda registry, folder: registry.ensure("channel:bot@g2", folder / "kept", FORM),
    "label": lambda registry, _: registry.label("one", {"team": "search", "draft": None}),
    "attest": lambda registry, _: registry.attest("one", {"by": "red team", "runs": 3, "seen": ["a", "b"], "ok": None}),
    "attest nested": lambda registry, _: registry.attest("one", {"nested": {"no": "objects"}}),
    "attest nothing": lambda registry, _: registry.attest("one", {}),
    "alias": lambda registry, _: registry.alias("one@1", "stable"),
    "yank": lambda registry, _: registry.yank("many-3", "wrong data"),
    "purge": lambda registry, _: registry.purge("many-4", "asked to"),
    "purge live": lambda registry, _: registry.purge("two", "asked to"),
    "gc": lambda registry, _: registry.gc(3600.0),
    "verify": lambda registry, _: registry.verify("merged", deep=True),
    "add_compute_contract": lambda registry, _: registry.add_compute_contract(contract("mod_training"), "routed"),
    "contract_diff": lambda registry, _: registry.contract_diff("mod_training", "routed"),
    "add_continual_state": _state,
    "state_report": lambda registry, _: registry.state_report("after-one"),
    "add_router refused": lambda registry, _: registry.add_router({}, "router"),
    "add_resolved_route refused": lambda registry, _: registry.add_resolved_route({}, "route"),
    "add_transaction refused": lambda registry, _: registry.add_transaction({}, "transaction"),
    "add_evaluation refused": lambda registry, _: registry.add_evaluation({}, "evaluation"),
    "evaluation_report refused": lambda registry, _: registry.evaluation_report("one"),
    "create_token revoke_token tokens": _token,
    "add_webhook webhooks webhook_deliveries remove_webhook": _webhook,
    "jobs job refused": _jobs,
    "wait_job refused": lambda registry, _: registry.wait_job("0" * 32),
    "cancel_job refused": lambda registry, _: registry.cancel_job("0" * 32),
}
OWN = {"id", "secret", "acquired", "expires", "next", "run_record", "audit_events"}
"""Drawn, measured or counted by each registry for itself."""


def methods() -> set[str]:
    """The public methods of the interface."""
    return {name for name, _ in inspect.getmembers(Registry, inspect.isfunction) if not name.startswith("_")}


def own(key: str, value: Any) -> bool:
    """Whether a field is a registry's own: `created` is, where it is a moment, and `head`, where it is the audit's."""
    return key in OWN or (key in ("created", "head") and isinstance(value, str))


def told(value: Any, folder: Path) -> Any:
    """A result as a document, without what each registry draws for itself, and with its folder by another name."""
    if isinstance(value, AddedMany):
        refused = [(str(item.directory), item.error.code) for item in value.refused]
        return told([*value.added, *refused], folder)
    if isinstance(value, ProblemError):
        return [type(value).__name__, sorted({(item.code, item.path) for item in value.problems})]
    if isinstance(value, BaseModel):
        return told(value.model_dump(mode="json"), folder)
    if isinstance(value, dict):
        return {key: told(item, folder) for key, item in value.items() if not own(key, item)}
    if isinstance(value, list | tuple):
        return [told(item, folder) for item in value]
    return value.replace(str(folder), "FOLDER") if isinstance(value, str) else value


def outcome(registry: Registry, call: Call, folder: Path) -> Any:
    """What a call gives, or how it is refused."""
    try:
        return call(registry, folder)
    except ProblemError as error:
        return error


def tree(folder: Path) -> dict[str, bytes | str]:
    """Every file and link below a folder."""
    return {
        str(path.relative_to(folder)): str(path.readlink()) if path.is_symlink() else path.read_bytes()
        for path in sorted(folder.rglob("*"))
        if path.is_symlink() or path.is_file()
    }


def both(embedded: EmbeddedRegistry, remote: RemoteRegistry) -> Iterable[Registry]:
    """The type checker holds both to the interface here."""
    return (embedded, remote)


def test_the_table_has_every_method_of_the_interface() -> None:
    called = {word for step in STEPS for word in step.split()}
    assert methods() - called == set()


def test_every_method_gives_the_same_behind_a_server(served: Served, sqlite_template: Path, tmp_path: Path) -> None:
    here = made_in(tmp_path / "here", sqlite_template)
    differing: dict[str, tuple[Any, Any]] = {}
    with EmbeddedRegistry.open(settings_in(here)) as embedded, served.client() as remote:
        furnish(embedded, here)
        first, second = both(embedded, remote)
        for step, call in STEPS.items():
            left = told(outcome(first, call, here), here)
            right = told(outcome(second, call, served.folder), served.folder)
            if left != right:
                differing[step] = (left, right)
    assert not differing, json.dumps(differing, indent=1, default=str)[:6000]
    for folder in ("served", "out", "dense", "kept", "watched"):
        assert tree(here / folder) == tree(served.folder / folder), folder
    assert not list(tmp_path.rglob("*.arriving"))


def test_what_a_server_refuses_arrives_with_the_decision(served: Served) -> None:
    with served.client() as remote:
        answer = remote.admit(_spec(TWICE))
    assert answer.outcome == "refused"
    assert answer.admission is not None
    assert {finding.code for finding in answer.decision.refusals} == {"MEMBER_TWICE"}


@pytest.mark.parametrize("secret", ["areg_not-this-one"])
def test_a_token_is_in_no_message_and_no_representation(served: Served, secret: str) -> None:
    other = Served(served.folder, served.url, secret)
    with other.client() as remote, pytest.raises(ProblemError) as refused:
        remote.show("one")
    assert secret not in str(refused.value) + repr(refused.value) + repr(remote)
    assert refused.value.code == "TOKEN_INVALID"


def test_where_an_adapter_was_fetched_from_becomes_a_statement_on_the_server(served: Served) -> None:
    with served.client() as remote:
        files: JsonObject = {entry.path: entry.blob for entry in remote.show("one").files}
        origin: JsonObject = {"source": "hub", "repository": "me/one", "revision": None, "commit": "0" * 40}
        body: JsonObject = {"name": "fetched", "base": "tiny", "files": files, "origin": origin}
        assert not remote.http.post(Added, "/v1/adapters", body).created
        said = [item["body"] for item in remote.show("one").statements if item["topic"] == "provenance"]
    assert isinstance(said[-1], dict)
    assert said[-1]["commit"] == "0" * 40
