"""The main job over the use cases, on both databases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from safetensors.numpy import load_file

from registry.db import channels
from registry.errors import ConflictError, NotFoundError, RefusedError, StaleHeadError, UsageProblemError
from registry.service import add, admit, export, look, publish, specs, verify
from registry.service.context import Context
from registry.service.export import Form
from schemas.publication import PublicationManifest
from tests.support import tiny


def register(context: Context, base: Path, folder: Path) -> None:
    """A base and three adapters: plain, rank-stabilised, and one of another rank on fewer modules."""
    add.add_base(context, base, "tiny")
    add.add_adapter(context, tiny.write_adapter(folder / "one", 1), "tiny", "one")
    add.add_adapter(context, tiny.write_adapter(folder / "two", 2, use_rslora=True), "tiny", "two")
    few = tiny.factors(3, 3, tiny.MODULES[:2])
    adapter = tiny.write_adapter(folder / "few", rank=3, tensors=few, layers_to_transform=[0])
    add.add_adapter(context, adapter, "tiny", "few")


def spec(**members: float) -> bytes:
    """A cat of named members."""
    lines = "".join(f"  - {{ref: {name}, weight: {weight}}}\n" for name, weight in members.items())
    return f"name: merged\nbase: tiny\nmethod: cat\nspace: delta\nmembers:\n{lines}".encode()


def test_the_output_is_the_weighted_sum_of_the_members_deltas(
    context: Context, tiny_base: Path, tmp_path: Path
) -> None:
    register(context, tiny_base, tmp_path)
    answer = admit.admit(context, specs.parse_spec(spec(one=1.0, two=-0.5, few=0.25)))
    assert answer.outcome == "admitted"
    assert answer.created
    out = tmp_path / "out"
    export.export(context, "merged", out, Form("tiny"))
    for module in tiny.MODULES:
        expected = tiny.delta(tmp_path / "one", module) - 0.5 * tiny.delta(tmp_path / "two", module)
        if module in tiny.MODULES[:2]:
            expected = expected + 0.25 * tiny.delta(tmp_path / "few", module)
        tensors = load_file(out / "adapter_model.safetensors")
        a = tensors[f"base_model.model.{module}.lora_A.weight"].astype(np.float64)
        b = tensors[f"base_model.model.{module}.lora_B.weight"].astype(np.float64)
        np.testing.assert_allclose(b @ a, expected, rtol=0, atol=1e-6 * np.abs(expected).max())


def test_the_same_question_is_composed_once_and_named_once(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    first = admit.admit(context, specs.parse_spec(spec(one=1.0, two=2.0)))
    again = admit.admit(context, specs.parse_spec(spec(two=2.0, one=1.0)))
    assert (again.composition, again.version, again.created) == (first.composition, 1, False)
    assert again.measurement == first.measurement


def test_a_refusal_is_stored_and_leaves_no_name(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    changed = tiny.base_tensors()
    changed["encoder.layer.1.attention.self.value.weight"][3, 4] += 1e-3
    add.add_base(context, tiny.write_base(tmp_path / "other", changed), "other")
    add.add_adapter(context, tiny.write_adapter(tmp_path / "far", 9), "other", "far")
    answer = admit.admit(context, specs.parse_spec(spec(one=1.0, far=1.0)))
    assert answer.outcome == "refused"
    assert "BASE_WEIGHTS_DIFFER" in {finding.code for finding in answer.decision.refusals}
    assert answer.admission is not None
    assert look.show(context, answer.admission).kind == "admission"
    with pytest.raises(NotFoundError, match="NAME_UNKNOWN"):
        look.show(context, "merged")


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (spec(one=1.0, two=1.0).replace(b"space: delta\n", b""), "SPACE_UNDECLARED"),
        (spec(one=1.0, two=1.0).replace(b"ref: two", b"ref: one"), "MEMBER_TWICE"),
    ],
)
def test_contract_faults_are_stored_refusals(
    context: Context, tiny_base: Path, tmp_path: Path, text: bytes, code: str
) -> None:
    register(context, tiny_base, tmp_path)
    answer = admit.admit(context, specs.parse_spec(text))
    assert code in {finding.code for finding in answer.decision.refusals}
    assert answer.admission is not None
    assert look.show(context, answer.admission).manifest["decision"] == answer.decision.document()


def test_a_dry_run_stores_nothing(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    before = verify.verify(context)
    answer = admit.admit(context, specs.parse_spec(spec(one=1.0, two=1.0)), dry_run=True)
    assert answer.outcome == "admitted"
    assert verify.verify(context) == before


def test_a_rollback_serves_the_old_tuple_under_a_new_number(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    first = publish.publish(context, "bot", ["one"], expect=0)
    second = publish.publish(context, "bot", ["two"], expect=1)
    third = publish.rollback(context, "bot", expect=2)
    assert (third.generation, third.restored, third.artifacts) == (3, 1, first.artifacts)
    assert third.previous == second.publication
    assert len({first.publication, second.publication, third.publication}) == 3
    assert len({first.kv_identity, second.kv_identity, third.kv_identity}) == 3
    fourth = publish.rollback(context, "bot")
    assert fourth.artifacts == second.artifacts
    assert [item.generation for item in publish.history(context, "bot")] == [4, 3, 2, 1]
    assert [item.live for item in publish.history(context, "bot")] == [True, False, False, False]


def test_publish_refuses_a_stale_head(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    publish.publish(context, "bot", ["one"])
    with pytest.raises(StaleHeadError) as caught:
        publish.publish(context, "bot", ["two"], expect=0)
    assert caught.value.head == 1
    with context.database.reading() as reader:
        head = channels.head(reader, "bot")
    assert head is not None
    assert head.number == 1


def test_publish_takes_only_what_can_serve(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    with pytest.raises(UsageProblemError, match="NOT_AN_ADAPTER"):
        publish.publish(context, "bot", ["tiny"])


def test_a_stored_publication_reads_back_as_what_was_said(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    done = publish.publish(context, "bot", ["one", "two"], reason="canary")
    manifest = look.show(context, done.publication).manifest
    assert manifest["artifacts"] == list(done.artifacts)
    assert PublicationManifest.KIND == "publication"
    assert manifest["reason"] == "canary"


def test_lineage_leads_from_a_base_to_the_channel_and_back(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    answer = admit.admit(context, specs.parse_spec(spec(one=1.0, two=1.0)))
    done = publish.publish(context, "bot", ["merged"])
    up = look.line(context, done.publication, "up")
    assert {"base", "adapter", "admission", "composition", "publication"} == {node.kind for node in up.nodes}
    down = look.line(context, "one", "down", live=True)
    assert answer.composition in {node.digest for node in down.nodes}
    assert down.live == ("bot@g1",)
    assert look.line(context, "few", "down", live=True).live == ()


def test_export_never_writes_over_a_directory(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    with pytest.raises(ConflictError, match="TARGET_EXISTS"):
        export.export(context, "one", tmp_path / "two", Form("tiny"))
    assert not list(tmp_path.glob("*.partial"))


def test_diff_names_the_field(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    register(context, tiny_base, tmp_path)
    same = tiny.write_adapter(tmp_path / "alpha", 1, lora_alpha=6)
    add.add_adapter(context, same, "tiny", "alpha")
    paths = {item.path for item in look.diff(context, "one", "alpha")}
    assert paths == {
        f"/factors/{index}/scale/{field}" for index in range(len(tiny.MODULES)) for field in ("alpha", "value")
    }


def test_a_refused_directory_leaves_only_an_audit_row(context: Context, tiny_base: Path, tmp_path: Path) -> None:
    add.add_base(context, tiny_base, "tiny")
    before = verify.verify(context)
    bad = tiny.factors(1)
    bad[f"base_model.model.{tiny.MODULES[0]}.lora_A.weight"][1, 2] = np.nan
    with pytest.raises(RefusedError):
        add.add_adapter(context, tiny.write_adapter(tmp_path / "bad", tensors=bad), "tiny", "bad")
    after = verify.verify(context)
    assert (after.manifests, after.blobs) == (before.manifests, before.blobs)
    assert after.audit_events == before.audit_events + 1
    assert after.clean
