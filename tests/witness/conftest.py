"""One BLAS thread: tiny products in many threads mostly wait."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from compose.threads import one_blas_thread


@pytest.fixture(autouse=True, scope="module")
def _one_thread() -> Iterator[None]:
    with one_blas_thread():
        yield
