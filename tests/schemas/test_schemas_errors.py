"""Typed problems: what, where, expected, observed and how to repair it."""

from __future__ import annotations

import pytest

from schemas.errors import DigestMismatchError, Problem, ProblemError, RefusedError, UsageProblemError, refuse

RANK = Problem(code="RANK", path=("a", 0, "x/y~z"), expected="2", observed="3", hint="Lower it.")
SPACE = Problem(code="SPACE", expected="delta", observed="none", hint="Declare it.")


def test_a_path_is_rendered_as_a_json_pointer() -> None:
    assert RANK.pointer == "/a/0/x~1y~0z"
    assert SPACE.pointer == ""


def test_an_error_says_every_problem_with_its_repair() -> None:
    error = RefusedError(RANK, SPACE)
    assert error.code == "RANK"
    assert error.problems == (RANK, SPACE)
    assert str(error) == (
        "RANK at /a/0/x~1y~0z: expected 2, found 3. Lower it.; SPACE: expected delta, found none. Declare it."
    )


def test_an_error_without_a_problem_is_not_made() -> None:
    with pytest.raises(ValueError, match="at least one problem"):
        ProblemError()


def test_refusing_nothing_does_nothing_and_refusing_all_lists_all() -> None:
    refuse([])
    with pytest.raises(RefusedError) as caught:
        refuse(iter([RANK, SPACE]))
    assert caught.value.problems == (RANK, SPACE)


def test_usage_refusal_and_mismatch_are_three_errors_of_one_family() -> None:
    family = (UsageProblemError, RefusedError, DigestMismatchError)
    for one in family:
        assert issubclass(one, ProblemError)
        assert not any(issubclass(one, other) for other in family if other is not one)
