"""Admissions, compositions and generations, by way of a server."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from registry.client.remote import paths
from registry.client.remote.http import Http
from registry.client.remote.jobs import counted, done, followed
from registry.errors import DecisionError, NotFoundError, StaleHeadError
from registry.service import releases, specs
from registry.service.composer import Progress
from registry.service.decide import conditions
from registry.service.jobs import Job
from registry.service.results import Admitted, Published
from schemas.canonical import JsonObject, JsonValue
from schemas.decision import Decision
from schemas.model import validate

TRIES: Final = 8
"""Publications on a head that others keep moving."""


class Changing:
    """What is made of what is there, and what is live."""

    http: Http

    def admit(
        self, spec: bytes, *, dry_run: bool = False, plan: bool = False, progress: Progress | None = None
    ) -> Admitted:
        """Decide on a spec (YAML or JSON) and compose what is admitted; look at `outcome` before anything else."""
        document = specs.parse_document(spec)
        if releases.is_release(document):
            release = releases.parse(document)
            route = "previews/releases" if dry_run or plan else "releases"
            return _decided(lambda: self.http.post(Admitted, f"/v1/{route}", release.document()), release.acknowledge)
        wanted = specs.spec_from(document)
        if dry_run or plan:
            return self.http.post(Admitted, "/v1/previews/compositions", wanted.document(), params={"plan": plan})
        return _decided(lambda: self._composed(wanted.document(), progress), wanted.acknowledge)

    def publish(
        self, channel: str, refs: Sequence[str], *, expect: int | None = None, reason: str = "release"
    ) -> Published:
        """Append a generation."""
        body: JsonObject = {"refs": list[JsonValue](refs), "reason": reason}
        return self._appended(channel, "generations", body, expect)

    def rollback(
        self, channel: str, *, to: int | None = None, expect: int | None = None, reason: str = "rollback"
    ) -> Published:
        """Append a generation with an earlier tuple."""
        return self._appended(channel, "rollback", {"to": to, "reason": reason}, expect)

    def history(self, channel: str, after: str | None = None, limit: int = 50) -> tuple[Published, ...]:
        """Generations of a channel, newest first."""
        page = {"after": after, "limit": limit}
        return self.http.get_all(Published, paths.of_channel(channel, "generations"), page)

    def _composed(self, spec: JsonObject, progress: Progress | None) -> Admitted:
        job = self.http.post_once(Job, "/v1/compositions", spec)
        ended = done(followed(self.http, job, counted(progress)))
        admitted = validate(Admitted, ended.result)
        # what was done before it was asked for made nothing now
        return admitted if job.open else admitted.model_copy(update={"created": False})

    def _appended(self, channel: str, route: str, body: JsonObject, expect: int | None) -> Published:
        """Without a head that is expected, on whatever head there is, however often others come first."""
        path = paths.of_channel(channel, route)
        head = self._head(channel) if expect is None else expect
        for _ in range(TRIES - 1):
            try:
                return self._append(path, body, head)
            except StaleHeadError as error:
                if expect is not None:
                    raise
                head = error.head
        return self._append(path, body, head)

    def _append(self, path: str, body: JsonObject, head: int) -> Published:
        return self.http.post_once(Published, path, body, headers={"If-Match": f'"g{head}"'})

    def _head(self, channel: str) -> int:
        try:
            return self.history(channel, limit=1)[0].generation
        except NotFoundError:
            return 0


def _decided(ask: Callable[[], Admitted], acknowledge: Sequence[str]) -> Admitted:
    """An answer also where the decision stops the composition; the caller looks at its outcome."""
    try:
        return ask()
    except DecisionError as error:
        decision = validate(Decision, error.decision)
        accepted = tuple(sorted(conditions(decision) & set(acknowledge)))
        admission = error.admission or None
        return Admitted(outcome=decision.outcome, decision=decision, admission=admission, acknowledged=accepted)
