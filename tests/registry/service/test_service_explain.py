"""Every code the product can give is explained, and nothing is explained that it cannot give."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from registry.service.explain import explain, notes
from schemas.catalogue import by_id
from validators import CODES, CodeUnknownError

ROOT = Path(__file__).parents[3]
ROOMS = ("schemas", "validators", "compose", "registry", "migrations")
CODE = re.compile(r"[A-Z][A-Z0-9]*(_[A-Z0-9]+)+")
NOT_CODES = {
    "F8_E4M3", "F8_E5M2",
    "HF_HUB_OFFLINE", "REGISTRY_HOME", "REGISTRY_URL", "TRANSFORMERS_VERBOSITY", "XDG_CACHE_HOME",
    "O_NOFOLLOW", "O_NONBLOCK",
    "MKL_NUM_THREADS", "OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "PROMETHEUS_MULTIPROC_DIR",
    "MAX_RECOVERY_ATTEMPTS_EXCEEDED", "RULES_VERSION",
}  # fmt: skip
"""Dtypes, environment variables, flags of the operating system, and other names that look like codes."""


def literals(module: ast.Module) -> Iterator[str]:
    """Every text that looks like a code, and every text given as a code whatever it looks like."""
    for node in ast.walk(module):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and CODE.fullmatch(node.value):
            yield node.value
        if isinstance(node, ast.keyword) and node.arg == "code" and isinstance(node.value, ast.Constant):
            yield str(node.value.value)


def given() -> dict[str, Path]:
    """Every code in the source, with a module that gives it."""
    return {
        code: path
        for room in ROOMS
        for path in sorted((ROOT / room).rglob("*.py"))
        for code in literals(ast.parse(path.read_text(encoding="utf-8")))
    }


def test_every_code_in_the_source_is_explained() -> None:
    explained = {*CODES, *notes(), *NOT_CODES}
    assert {code: path for code, path in given().items() if code not in explained} == {}


def test_no_code_is_explained_that_the_source_does_not_give() -> None:
    assert sorted({*notes(), *NOT_CODES} - set(given())) == []


def test_a_code_is_a_finding_or_a_note_and_never_both() -> None:
    assert set(CODES) & set(notes()) == set()


@pytest.mark.parametrize("name", [*CODES, *notes(), *by_id()])
def test_an_explanation_names_what_it_is_about_who_repairs_it_and_how(name: str) -> None:
    fields = explain(name)
    assert name in (fields.get("code"), fields.get("id"))
    assert fields["owner"]
    assert str(fields["recovery"]).endswith(".")
    assert len({str(fields.get(key)) for key in ("meaning", "invariant", "recovery")}) > 1


def test_a_finding_leads_to_the_failure_it_detects() -> None:
    fields = explain("SCALE_INCONSISTENT")
    assert fields["failure"] == "rslora_scale_stale"
    assert fields["example"] == explain("rslora_scale_stale")["fault"]
    assert (fields["predicate"], fields["coordinate"]) == ("P_F", "config becomes rejected")


@pytest.mark.parametrize("name", ["", "NO_SUCH_CODE", "name_unknown", "NF4_CODES_TRAINED"])
def test_an_unknown_name_is_a_typed_error(name: str) -> None:
    with pytest.raises(CodeUnknownError) as caught:
        explain(name)
    assert (caught.value.code, caught.value.problems[0].observed) == ("CODE_UNKNOWN", name)
