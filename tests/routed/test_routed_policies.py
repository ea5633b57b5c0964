"""Channel policies: evidence and a passed evaluation before publication; the upgrade that brings them keeps data."""

from __future__ import annotations

from pathlib import Path

import pytest
from sqlalchemy import create_engine, text

from registry.client import EmbeddedRegistry
from registry.db import check, migrate
from registry.errors import RefusedError
from tests.routed.conftest import Api, Run
from tests.routed.documents import evaluation
from tests.support import tiny


def refused(registry: EmbeddedRegistry, name: str) -> str:
    """The code with which a publication is refused."""
    with pytest.raises(RefusedError) as caught:
        registry.publish("bot", [name])
    return caught.value.code


def test_a_channel_that_requires_an_evaluation_serves_what_passed_one(registry: EmbeddedRegistry) -> None:
    registry.publish("bot", ["three"])
    registry.set_channel_policy("bot", {"evaluation": True})
    assert refused(registry, "two") == "POLICY_EVALUATION"
    registry.add_evaluation(evaluation({"two": 0.8, "one": 0.7}), "lost")
    assert registry.evaluation_report("lost").verdict == "failed"
    registry.add_evaluation(evaluation({"one": 0.7, "two": 0.8}), "won")
    assert refused(registry, "one") == "POLICY_EVALUATION"
    assert registry.publish("bot", ["two"]).generation == 2
    assert registry.rollback("bot").generation == 3
    registry.set_channel_policy("bot", {})
    assert registry.publish("bot", ["one"]).generation == 4
    assert registry.verify().clean


def test_a_channel_may_demand_more_of_the_base_than_was_read(
    registry: EmbeddedRegistry, tiny_base: Path, tmp_path: Path
) -> None:
    registry.add_base(tiny_base, "shapes", evidence="structural")
    registry.add_adapter(tiny.write_adapter(tmp_path / "shapes", 9), "shapes", "loose")
    registry.set_channel_policy("bot", {"evidence": "content"})
    assert refused(registry, "loose") == "POLICY_EVIDENCE"
    assert registry.publish("bot", ["one"]).generation == 1
    registry.set_channel_policy("bot", {"evidence": "structural"})
    assert registry.publish("bot", ["loose"]).generation == 2
    with pytest.raises(RefusedError):
        registry.set_channel_policy("bot", {"evidence": "none"})


TO_THE_FIRST_SCHEMA = (
    "DROP TABLE channel_policy",
    *(f"DROP TABLE webhook_{name}" for name in ("event", "secret", "delivery")),
    "DROP INDEX ix_upload_session_expected",
    "ALTER TABLE upload_session DROP COLUMN name",
    "ALTER TABLE job ADD COLUMN lease_until VARCHAR",
    "UPDATE alembic_version SET version_num = '0001'",
)


def test_a_database_of_the_first_schema_is_upgraded_with_its_data(registry: EmbeddedRegistry) -> None:
    registry.publish("bot", ["one"])
    url = registry.context.database.url
    engine = create_engine(url)
    with engine.begin() as connection:
        for statement in TO_THE_FIRST_SCHEMA:
            connection.execute(text(statement))
    engine.dispose()
    problem = migrate.schema_problem("0001")
    assert problem is not None
    assert problem.code == "SCHEMA_OLDER"
    migrate.upgrade(url)
    assert check.check(url) == ()
    assert registry.history("bot")[0].generation == 1
    registry.set_channel_policy("bot", {"evaluation": True})
    assert refused(registry, "two") == "POLICY_EVALUATION"
    assert registry.verify(deep=True).clean


def test_a_policy_by_command_and_by_request(run: Run, api: Api, tmp_path: Path) -> None:
    assert run("channel", "policy", "bot").stdout.split() == ["evidence:", "any", "evaluation:", "False"]
    assert "evaluation: True" in run("channel", "policy", "bot", "--evaluation").stdout
    run("add", "base", tiny.write_base(tmp_path / "base"), "--name", "tiny")
    run("add", "adapter", tiny.write_adapter(tmp_path / "cli"), "--base", "tiny", "--name", "one")
    run("publish", "bot", "one", code=3)
    run("channel", "policy", "bot", "--no-evaluation")
    run("publish", "bot", "one")
    assert api.put("/v1/channels/bot/policy", json={"evidence": "content", "evaluation": True}).status_code == 200
    assert api.get("/v1/channels/bot/policy").json() == {"evidence": "content", "evaluation": True}
    answer = api.post("/v1/channels/bot/generations", json={"refs": ["one"]}, headers={"If-Match": '"g0"'})
    assert (answer.status_code, answer.json()["code"]) == (422, "POLICY_EVALUATION")
