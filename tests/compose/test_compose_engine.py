"""The run itself: the written file, progress, cancel, failure, the plan and its limit, the ledger's totals."""

from __future__ import annotations

import json
from dataclasses import replace
from math import sqrt
from pathlib import Path

import pytest
import torch
from safetensors import safe_open

from compose import (
    ComposeCancelledError,
    ComposeRefusedError,
    ComposeRequest,
    ComposeResult,
    Member,
    MemoryLimitError,
    Options,
    Progress,
    compose,
    plan,
)
from compose.ledger import significant
from compose.threads import one_blas_thread
from schemas.canonical import canonical_bytes
from schemas.digests import tensor_digest
from schemas.methods import DareChoices, DtypeChoices, ties_preset
from tests.compose.building import delta, figures, member, random_pair, request, run, total

NAMES = [f"layer.{index}.query" for index in range(5)]


@pytest.fixture
def members(tmp_path: Path) -> list[Member]:
    (tmp_path / "in").mkdir()
    return [
        member(
            tmp_path / "in", who, {name: random_pair(2, 12, 10, seed=10 * start + i) for i, name in enumerate(NAMES)}
        )
        for start, who in enumerate(("one", "two"))
    ]


def test_every_written_tensor_lies_where_the_result_says_and_has_the_digest_it_says(
    tmp_path: Path, members: list[Member]
) -> None:
    result, tensors = run(request("cat", members, dtype=DtypeChoices(store="bfloat16")), tmp_path / "out")
    raw = result.path.read_bytes()
    assert len(result.tensors) == len(tensors) == 2 * len(NAMES)
    for item in result.tensors:
        data = raw[item.offset : item.offset + item.length]
        assert item.tensor.tensor == tensor_digest("BF16", item.tensor.shape, data)
        stored = tensors[f"{item.module}.{item.role}"]
        assert stored.contiguous().view(torch.uint8).numpy().tobytes() == data
        assert item.offset % 8 == 0
    assert [(item.module, item.role) for item in result.tensors] == [
        (n, r) for n in NAMES for r in ("lora_A", "lora_B")
    ]


def test_the_file_is_what_safetensors_itself_reads(tmp_path: Path, members: list[Member]) -> None:
    result, _ = run(request("cat", members), tmp_path / "out")
    with safe_open(result.path, framework="pt") as file:
        assert sorted(file.keys()) == sorted(f"{name}.lora_{side}" for name in NAMES for side in "AB")


def test_heads_of_another_dtype_stay_aligned_beside_16_bit_factors(tmp_path: Path) -> None:
    head = torch.arange(3, dtype=torch.float64)
    one = member(
        tmp_path, "one", {"m": random_pair(1, 3, 3, seed=1)}, replacements={"head": head, "odd": torch.ones(1)}
    )
    result, tensors = run(request("cat", [one], dtype=DtypeChoices(store="float16")), tmp_path / "out")
    assert torch.equal(tensors["head"], head)
    assert all(item.offset % 2 == 0 for item in result.tensors)
    assert next(item for item in result.tensors if item.module == "head").offset % 8 == 0


def test_a_convolution_is_composed_flat_and_written_with_its_kernel(tmp_path: Path) -> None:
    pairs = [random_pair(2, 5, 12, seed) for seed in (1, 2)]
    members = [member(tmp_path, str(index), {"conv": pair}, weight=0.5) for index, pair in enumerate(pairs)]
    shaped = [replace(one, factors=(replace(one.factors[0], kernel=(2, 3)),)) for one in members]
    result, tensors = run(request("cat", shaped), tmp_path / "out")
    assert {item.role: item.tensor.shape for item in result.tensors} == {"lora_A": (4, 2, 2, 3), "lora_B": (5, 4, 1, 1)}
    flat = {name: value.flatten(1) for name, value in tensors.items()}
    torch.testing.assert_close(delta(flat, "conv"), 0.5 * sum(b @ a for a, b in pairs))
    with pytest.raises(ComposeRefusedError) as refused:
        run(request("cat", [shaped[0], members[1]]), tmp_path / "out")
    assert refused.value.code == "MODULE_SHAPES_DIFFER"


def test_progress_counts_every_module_in_the_callers_thread(tmp_path: Path, members: list[Member]) -> None:
    seen: list[Progress] = []
    run(request("cat", members), tmp_path / "out", Options(workers=2, progress=seen.append))
    assert [item.done for item in seen] == [1, 2, 3, 4, 5]
    assert {item.total for item in seen} == {5}
    assert sorted(item.module for item in seen) == NAMES


def test_a_cancelled_run_leaves_nothing_and_the_old_file_as_it_was(tmp_path: Path, members: list[Member]) -> None:
    out = tmp_path / "out"
    out.write_bytes(b"before")
    seen: list[Progress] = []
    options = Options(workers=1, progress=seen.append, cancel=lambda: len(seen) >= 2)
    with pytest.raises(ComposeCancelledError) as cancelled:
        compose(request("cat", members), out, options=options)
    assert cancelled.value.code == "COMPOSE_CANCELLED"
    assert out.read_bytes() == b"before"
    assert sorted(path.name for path in tmp_path.iterdir()) == ["in", "out"]


def test_an_error_in_the_callers_progress_leaves_nothing(tmp_path: Path, members: list[Member]) -> None:
    def fail(_: Progress) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        compose(request("cat", members), tmp_path / "out", options=Options(progress=fail))
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_what_a_killed_run_left_is_overwritten(tmp_path: Path, members: list[Member]) -> None:
    clean, _ = run(request("cat", members), tmp_path / "clean")
    (tmp_path / "out.partial").write_bytes(b"z" * 100_000)
    again, _ = run(request("cat", members), tmp_path / "out")
    assert again.path.read_bytes() == clean.path.read_bytes()
    assert not (tmp_path / "out.partial").exists()


def test_a_missing_folder_is_an_os_error(tmp_path: Path, members: list[Member]) -> None:
    with pytest.raises(FileNotFoundError):
        compose(request("cat", members), tmp_path / "nowhere" / "out")


def test_a_store_dtype_too_narrow_for_the_result_is_refused(tmp_path: Path) -> None:
    a, b = random_pair(2, 4, 3, seed=1)
    one = member(tmp_path, "one", {"m": (a * 1e6, b)})
    with pytest.raises(ComposeRefusedError) as refused:
        run(request("cat", [one], dtype=DtypeChoices(store="float16")), tmp_path / "out")
    assert (refused.value.code, refused.value.problems[0].path) == ("STORE_OVERFLOW", ("m.lora_A",))


def test_the_plan_knows_the_size_before_work(tmp_path: Path, members: list[Member]) -> None:
    for asked in (request("cat", members), request("delta_svd", members, rank=3)):
        planned = plan(asked)
        result, _ = run(asked, tmp_path / "out")
        assert planned.output_size == planned.bytes_written == result.path.stat().st_size
        assert planned.bytes_read == sum(f.a.length + f.b.length for m in members for f in m.factors)
        assert result.run_record["bytes_read"] == planned.bytes_read
        assert planned.modules == len(NAMES)
        assert planned.flops > 0


def test_a_plan_above_the_memory_limit_is_refused_before_work(tmp_path: Path, members: list[Member]) -> None:
    asked = request("ties", members, rank=2, ties=ties_preset("paper", 0.5))
    with pytest.raises(MemoryLimitError) as refused:
        compose(asked, tmp_path / "out", options=Options(memory_limit=1000))
    assert refused.value.code == "MEMORY_LIMIT"
    assert [path.name for path in tmp_path.iterdir()] == ["in"]


def test_workers_are_as_many_as_the_limit_allows(members: list[Member]) -> None:
    asked = request("ties", members, rank=2, ties=ties_preset("paper", 0.5))
    single = plan(asked, Options(workers=1)).peak_bytes
    assert plan(asked, Options(workers=4)).workers == 4
    assert plan(asked, Options(workers=4, memory_limit=2 * single + 1)).workers == 2
    assert plan(asked, Options(workers=99)).workers == len(NAMES)
    dense = plan(asked, Options(workers=1)).peak_bytes - plan(request("cat", members), Options(workers=1)).peak_bytes
    assert dense > 8 * 12 * 10


def test_the_ledger_is_canonical_json_with_nine_digits(tmp_path: Path, members: list[Member]) -> None:
    result, _ = run(request("factor_linear", members, space="factor"), tmp_path / "out")
    assert json.loads(canonical_bytes(result.ledger)) == result.ledger
    norm = figures(result, NAMES[0])["norm"]
    assert norm == float(f"{norm:.9g}")
    assert significant(1 / 3) == 0.333333333


def test_totals_are_those_of_the_whole_adapter(tmp_path: Path, members: list[Member]) -> None:
    result, tensors = run(request("cat", members), tmp_path / "out")
    sums = total(result)
    assert sums["norm"] == pytest.approx(sqrt(sum(delta(tensors, n).square().sum().item() for n in NAMES)), rel=1e-8)
    deltas = [
        torch.cat(
            [
                (random_pair(2, 12, 10, seed=10 * who + i)[1] @ random_pair(2, 12, 10, seed=10 * who + i)[0]).flatten()
                for i in range(5)
            ]
        )
        for who in range(2)
    ]
    cosine = torch.nn.functional.cosine_similarity(deltas[0], deltas[1], dim=0).item()
    assert sums["cosines"] == [pytest.approx(cosine, rel=1e-7)]
    assert (sums["input_ranks"], sums["output_rank"], sums["numerical_rank"]) == (20, 20, 20)
    assert sums["sign_conflict"] is None


def test_totals_of_dense_methods_count_conflicts_and_kept_values(tmp_path: Path, members: list[Member]) -> None:
    asked = request("ties", members, rank=2, ties=ties_preset("paper", 0.5))
    result, _ = run(asked, tmp_path / "out")
    assert total(result)["retained"] == 2 * 5 * 60
    assert 0 < total(result)["sign_conflict"] < 1
    assert total(result)["numerical_rank"] is None
    assert figures(result, NAMES[0])["certificate"] == {"basis": 10, "excess": 0.0, "failure_probability": 0.0}


def test_a_zero_member_has_no_cosine(tmp_path: Path) -> None:
    a, b = random_pair(1, 3, 3, seed=1)
    asked = request("cat", [member(tmp_path, "one", {"m": (a, b)}), member(tmp_path, "two", {"m": (a, b * 0)})])
    result, _ = run(asked, tmp_path / "out")
    assert figures(result, "m")["cosines"] == [None]


def test_masks_and_drops_reach_manifest_and_ledger(tmp_path: Path, members: list[Member]) -> None:
    asked = request("dare_linear", members, space="factor", dare=DareChoices(density=0.5, seed="9"))
    result, _ = run(asked, tmp_path / "out")
    masks = result.modules[0].masks
    assert [(mask.adapter, mask.role) for mask in masks] == [(m.adapter, role) for m in members for role in ("a", "b")]
    assert figures(result, NAMES[0])["masks"] == [mask.mask for mask in masks]
    assert figures(result, NAMES[0])["drops"][0]["expected"] == pytest.approx(sqrt(3), rel=1e-8)
    assert result.stochastic is not None
    assert result.stochastic.generator == "blake3_u32_stream/1"


def test_the_run_record_tells_how_it_ran(tmp_path: Path, members: list[Member]) -> None:
    def record(result: ComposeResult) -> dict[str, object]:
        return dict(result.run_record)

    told = record(run(request("cat", members), tmp_path / "out", Options(workers=2))[0])
    assert (told["workers"], told["device"], told["torch"]) == (2, "cpu", torch.__version__)
    assert sorted(told) == [
        "bytes_read", "bytes_written", "cpu_capability", "device", "peak_memory", "seconds", "torch", "workers",
    ]  # fmt: skip


def test_the_thread_setting_of_the_process_comes_back(tmp_path: Path, members: list[Member]) -> None:
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        with one_blas_thread(), one_blas_thread():
            assert torch.get_num_threads() == 1
        run(request("cat", members), tmp_path / "out")
        assert torch.get_num_threads() == 2
    finally:
        torch.set_num_threads(before)


def test_one_adapter_twice_is_the_engines_to_compute(tmp_path: Path, members: list[Member]) -> None:
    asked: ComposeRequest = request("cat", [members[0], members[0]])
    result, tensors = run(asked, tmp_path / "out")
    once = run(request("cat", [members[0]]), tmp_path / "once")[1]
    torch.testing.assert_close(delta(tensors, NAMES[0]), 2 * delta(once, NAMES[0]))
    assert figures(result, NAMES[0])["cosines"] == [1.0]


def test_a_module_of_many_members_has_the_spread_of_its_cosines_and_the_total_has_all(tmp_path: Path) -> None:
    asked = request("cat", [member(tmp_path, str(seed), {"m": random_pair(1, 6, 5, seed)}) for seed in range(9)])
    result, _ = run(asked, tmp_path / "out.safetensors")
    every, spread = total(result)["cosines"], figures(result, "m")["cosines"]
    assert len(every) == 36
    assert spread == {"min": min(every), "mean": pytest.approx(sum(every) / 36, rel=1e-8), "max": max(every)}
