"""One damaged directory after another: a typed refusal or a reading that the reference confirms, in short time."""

from __future__ import annotations

import re
import shutil
import signal
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from types import FrameType
from typing import Any, Final

import numpy as np

from registry.errors import RefusedError
from registry.formats import AdapterReading, read_adapter, read_base
from schemas.base import BaseManifest
from tests.registry.formats.fuzz import arrays, reference
from tests.registry.formats.fuzz.mutations import mutated
from tests.registry.formats.fuzz.seeds import Files, seeds
from tests.registry.formats.producers.bases import CONFIGS, base_weights, write_base
from tests.registry.formats.producers.described import Described, close

SECONDS: Final = 20
NOTHING: Final = (
    arrays.RejectError, ArithmeticError, AttributeError, IndexError, KeyError, TypeError, ValueError, re.error,
    RecursionError,
)  # fmt: skip
"""What the reference reader meets in a directory that says nothing."""


def run(first: int, count: int, folder: Path) -> Counter[str]:
    """Cases by number; how many were refused, confirmed, and beyond the reference.

    Raises:
        AssertionError: a case that is neither; every error has the case's number in its notes.
    """
    outcomes: Counter[str] = Counter()
    names = sorted(seeds())
    for case in range(first, first + count):
        random = Random(case)
        name = random.choice(names)
        model_type, files = seeds()[name]
        damaged = mutated(files, random)
        with _named(f"case {case} of {name}"), _alarm():
            outcomes[outcome(damaged, model_type, folder)] += 1
    return outcomes


def outcome(files: Files, model_type: str, folder: Path) -> str:
    """`refused`, or `confirmed` by the reference, or `beyond` it.

    Raises:
        AssertionError: read where the reference sees nothing or another function.
    """
    directory, made = folder / "adapter", folder / "made"
    for place in (directory, made):
        shutil.rmtree(place, ignore_errors=True)
        place.mkdir()
    for name, content in files.items():
        (directory / name).write_bytes(content)
    try:
        reading = read_adapter(directory, base(model_type), scratch=made)
    except RefusedError:
        return "refused"
    return _confirmed(reading, files, model_type, directory)


def _confirmed(reading: AdapterReading, files: Files, model_type: str, directory: Path) -> str:
    if reading.manifest.full_replacements:
        return "beyond"
    try:
        with np.errstate(all="ignore"):
            expected = reference.deltas(files, base_weights(model_type), _model(model_type))
    except arrays.BeyondError:
        return "beyond"
    except NOTHING as error:
        raise AssertionError("read, but the reference reader sees nothing") from error
    described = Described(directory, reading, model_type)
    factors = {(factor.module, factor.expert): factor for factor in reading.manifest.factors}
    assert factors.keys() == expected.keys()
    with np.errstate(all="ignore"):
        for site, delta in expected.items():
            assert close(described.delta(factors[site]), delta), site
    return "confirmed"


@lru_cache
def base(model_type: str) -> BaseManifest:
    """The manifest of a small base."""
    with TemporaryDirectory() as folder:
        return read_base(write_base(Path(folder), model_type)).manifest


@lru_cache
def _model(model_type: str) -> dict[str, Any]:
    names = [name.removesuffix(".weight") for name, array in base_weights(model_type).items() if array.ndim == 2]
    config = CONFIGS[model_type]
    return config | {"modules": names, "head_dim": config.get("head_dim", 4)}


@contextmanager
def _named(case: str) -> Iterator[None]:
    """Say which case an error comes from."""
    try:
        yield
    except BaseException as error:
        error.add_note(case)
        raise


@contextmanager
def _alarm() -> Iterator[None]:
    def ring(signum: int, frame: FrameType | None) -> None:
        del signum, frame
        raise TimeoutError(f"more than {SECONDS} s")

    before = signal.signal(signal.SIGALRM, ring)
    signal.setitimer(signal.ITIMER_REAL, SECONDS)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)
