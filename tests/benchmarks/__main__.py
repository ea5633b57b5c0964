"""``python -m tests.benchmarks [NAME…]``: run all benchmarks or those named.

A benchmark is a module ``bench_<name>.py`` here with ``run() -> Iterator[str]``. It yields one line for each figure,
``name: peer … s, ours … s, ratio … x, peak … MiB``: the peer is the same work done bare, in the same run and in turns
with ours, and the ratio is the median over the pairs.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

PREFIX = "bench_"


def names() -> list[str]:
    """Every benchmark in this folder."""
    return sorted(file.stem.removeprefix(PREFIX) for file in Path(__file__).parent.glob(f"{PREFIX}*.py"))


def main(wanted: list[str]) -> int:
    """Print the lines of each wanted benchmark as they come; 2 for a name that is none."""
    unknown = sorted(set(wanted) - set(names()))
    if unknown:
        print(f"no benchmark {', '.join(unknown)}; there are: {', '.join(names())}", file=sys.stderr)
        return 2
    for name in wanted or names():
        for line in import_module(f"tests.benchmarks.{PREFIX}{name}").run():
            print(line, flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
