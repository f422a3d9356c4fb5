"""A Prefect server on PostgreSQL, as infra/compose.yaml has it, runs the deployments of infra/prefect.yaml."""

from __future__ import annotations

import base64
import contextlib
import json
import os
import re
import subprocess
import sys
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from tests.flows.commands import write_settings
from tests.flows.postgres import database, free_port, programs, wait_for
from tests.paths import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]

PASSWORD = "a-password"  # noqa: S105 - of a database that ends with the test
AUTH = "tester:another"
ENVIRONMENT = yaml.safe_load((ROOT / "infra" / "compose.yaml").read_text(encoding="utf-8"))["services"]["prefect"][
    "environment"
]


@pytest.fixture
def postgres() -> Iterator[str]:
    """The URL of an empty database, as compose.yaml names it, that asks for a password."""
    with database("prefect", PASSWORD) as port:
        url = ENVIRONMENT["PREFECT_API_DATABASE_CONNECTION_URL"].replace("${POSTGRES_PASSWORD}", PASSWORD)
        yield url.replace("@postgres:5432", f"@127.0.0.1:{port}")


@pytest.fixture
def environment(postgres: str, tmp_path: Path) -> Iterator[dict[str, str]]:
    """The variables of clients of a Prefect server on PostgreSQL."""
    prefect, port = str(Path(sys.executable).with_name("prefect")), free_port()
    configuration = write_settings(
        tmp_path / "indexmill.yaml",
        {
            "store": str(tmp_path / "store"),
            "corpus": {"paths": [str(ROOT / "sample" / "corpus.jsonl")]},
            "embed": {"model": "hash"},
            "run": {"workers": 1},
        },
    )
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    common = keep | {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "PYTHONPATH": str(ROOT),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }
    client = common | {
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_API_AUTH_STRING": AUTH,
        "INDEXMILL_CONFIG": str(configuration),
    }
    assert set(ENVIRONMENT) == {"PREFECT_API_DATABASE_CONNECTION_URL", "PREFECT_SERVER_API_AUTH_STRING"}
    with (tmp_path / "server.log").open("wb") as log:
        server = subprocess.Popen(
            [prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port)],
            env=common | {"PREFECT_API_DATABASE_CONNECTION_URL": postgres, "PREFECT_SERVER_API_AUTH_STRING": AUTH},
            stdout=log,
            stderr=log,
        )
        try:
            wait_for(lambda: healthy(port), 180)
            yield client
        finally:
            server.terminate()
            server.wait(30)


def test_a_refresh_is_published_and_the_next_one_is_unchanged(
    environment: dict[str, str], postgres: str, tmp_path: Path
) -> None:
    def run(*command: str) -> str:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=300)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def states() -> list[tuple[str, str]]:
        listed = json.loads(run("prefect", "flow-run", "ls", "-o", "json"))
        ended = [one["state"] for one in listed if one["deployment_id"] and one["state"]["type"] != "SCHEDULED"]
        return [(state["name"], state["message"]) for state in ended]

    run("prefect", "work-pool", "create", "indexmill", "--type", "process")
    run("prefect", "--no-prompt", "deploy", "--prefect-file", "infra/prefect.yaml", "--all")
    for state, message in (("Published", r"version 1: \d+ documents"), ("Unchanged", "version 1")):
        run("prefect", "deployment", "run", "indexmill-refresh/nightly")
        run("prefect", "worker", "start", "--pool", "indexmill", "--run-once")
        latest = dict(states())
        assert state in latest, latest
        assert re.search(message, latest[state])
    assert len(states()) == 2
    count = "select count(*) from flow_run where state_type = 'COMPLETED'"
    psql = [programs() / "psql", postgres.replace("+asyncpg", ""), "-Atc", count]
    kept = subprocess.run(psql, capture_output=True, text=True, check=True)
    assert int(kept.stdout) >= 2
    assert not list((tmp_path / "prefect").glob("*.db"))  # nothing of it is in SQLite


def healthy(port: int) -> bool:
    request = urllib.request.Request(f"http://127.0.0.1:{port}/api/health")
    request.add_header("Authorization", f"Basic {base64.b64encode(AUTH.encode()).decode()}")
    with contextlib.suppress(OSError), urllib.request.urlopen(request, timeout=5) as answer:  # noqa: S310
        return bool(answer.status == 200)
    return False
