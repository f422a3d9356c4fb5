"""What infra/ says fits the code that it runs."""

from __future__ import annotations

import importlib
import inspect
import json
import os
import re
import subprocess
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any
from uuid import uuid4

import jinja2
import pytest
import yaml

from indexmill.errors import BadInput, BudgetReached, DiskFull, GateRefused, IndexmillError, LeaseLost
from tests.corpora import documents, write_corpus
from tests.flows.children import settings
from tests.flows.commands import write_settings
from tests.paths import ROOT

INFRA = ROOT / "infra"
STATES = re.compile(r'name="(\w+)"|"(BadInput|Refused|BudgetReached|DiskFull|Failed)"')


def loaded(name: str) -> Any:
    return yaml.safe_load((INFRA / name).read_text(encoding="utf-8"))


def test_every_deployment_names_a_flow_and_its_parameters() -> None:
    for deployment in loaded("prefect.yaml")["deployments"]:
        module, _, name = deployment["entrypoint"].rpartition(".")
        flow = getattr(importlib.import_module(module), name)
        assert set(deployment["parameters"]) <= set(inspect.signature(flow.fn).parameters)
        assert deployment["concurrency_limit"] == {"limit": 1, "collision_strategy": "CANCEL_NEW"}


def test_deploying_asks_for_nothing_but_the_configuration(monkeypatch: pytest.MonkeyPatch) -> None:
    from prefect.utilities import templating

    warned: list[str] = []
    monkeypatch.setattr(templating.logger, "warning", warned.append)
    monkeypatch.setenv("INDEXMILL_CONFIG", "/etc/indexmill.yaml")
    monkeypatch.delenv("INDEXMILL_DASK", raising=False)
    deployed = templating.apply_values(loaded("prefect.yaml"), {}, warn_on_notset=True)
    assert warned == []
    assert [one["parameters"] for one in deployed["deployments"]] == [{"configuration": "/etc/indexmill.yaml"}] * 2


@pytest.mark.parametrize(
    ("parameter", "variable", "used"),
    [(None, None, None), (None, "", None), (None, "tcp://a:1", "tcp://a:1"), ("tcp://b:1", "tcp://a:1", "tcp://b:1")],
)
def test_a_run_finds_its_dask_scheduler(
    parameter: str | None, variable: str | None, used: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from flows import deployed

    asked: list[str | None] = []
    monkeypatch.setattr(deployed, "final_state", lambda order: asked.append(order.configuration.run.dask.address))
    monkeypatch.delenv("INDEXMILL_DASK", raising=False)
    if variable is not None:
        monkeypatch.setenv("INDEXMILL_DASK", variable)
    path = write_settings(tmp_path / "i.yaml", settings(tmp_path / "store", write_corpus(tmp_path / "c", documents(1))))
    deployed.refresh.fn(str(path), dask=parameter)
    deployed.backfill.fn(str(path), dask=parameter)
    assert asked == [used, used]


def test_automations_know_every_flow_and_every_state_of_theirs() -> None:
    from flows import build, deployed

    sys.path.insert(0, str(INFRA))
    try:
        made = {one.name: one for one in importlib.import_module("automations").automations(uuid4())}
    finally:
        sys.path.remove(str(INFRA))
    assert list(made) == ["indexmill-failed", "indexmill-stale", "indexmill-zombie"]
    names = {name for found in STATES.findall(inspect.getsource(build)) for name in found if name}
    names -= {"Stopped"}  # of task runs alone
    expected = {event.removeprefix("prefect.flow-run.") for event in made["indexmill-zombie"].trigger.expect}
    assert names >= {"Published", "Unchanged", "Skipped", "Refused"}
    assert names <= expected
    known = {flow.name for flow in vars(deployed).values() if type(flow).__name__ == "Flow"}
    for one in made.values():
        assert known <= set(one.trigger.match_related.root["prefect.resource.name"])


def test_a_message_with_quotes_is_still_json() -> None:
    (action,) = loaded("automations.yaml")["automations"][0]["actions"]
    state = {"name": "Refused", "message": 'recall "fell"\nby half'}
    told = jinja2.Template(action["payload"]).render(flow={"name": "f"}, flow_run={"name": "r", "state": state})
    assert json.loads(told) == {"text": 'f r is Refused: recall "fell"\nby half', "state": "Refused", "flow": "f"}


@pytest.mark.slow
def test_automations_can_be_created_from_a_file_as_prefect_documents_it(tmp_path: Path) -> None:
    """`prefect automation create --from-file` validates each of them so."""
    from prefect.events.schemas.automations import AutomationCore

    block = uuid4()
    program = [sys.executable, str(INFRA / "automations.py"), "--block", str(block)]
    printed = subprocess.run(program, capture_output=True, text=True, check=True, timeout=120).stdout
    made = [AutomationCore.model_validate(one) for one in yaml.safe_load(printed)["automations"]]
    assert [one.name for one in made] == ["indexmill-failed", "indexmill-stale", "indexmill-zombie"]
    failed, stale, _ = made
    assert {action.block_document_id for one in (failed, stale) for action in one.actions} == {block}  # type: ignore[union-attr]
    notified = {event.removeprefix("prefect.flow-run.") for event in failed.trigger.expect}  # type: ignore[union-attr]
    assert notified >= {"Refused", "BadInput", "BudgetReached", "DocumentsFailed", "DiskFull", "Failed", "Crashed"}


def test_compose_runs_commands_that_exist() -> None:
    compose = loaded("compose.yaml")
    assert {"postgres", "prefect", "certificates", "scheduler", "worker", "runner", "deploy"} == set(
        compose["services"]
    )
    for service in compose["services"].values():
        assert "image" in service
        command = service.get("command", "")
        for word in command.split()[:1] if isinstance(command, str) else command[:1]:
            assert not word or word == "sh" or (Path(sys.executable).parent / word).is_file(), word
    assert (INFRA / compose["services"]["worker"]["build"]["dockerfile"].removeprefix("infra/")).is_file()


def test_the_image_holds_the_application_and_nothing_else() -> None:
    copied = {
        word
        for line in (INFRA / "Dockerfile").read_text(encoding="utf-8").splitlines()
        if line.startswith("COPY ") and not line.startswith("COPY --from=")
        for word in line.split()[1:-1]
    }
    rules = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    allowed = {rule[1:] for rule in rules if rule.startswith("!")}
    assert "*" in rules
    assert rules.index("*") < min(rules.index(f"!{one}") for one in allowed)
    assert allowed == copied
    assert copied == {
        *("pyproject.toml", "constraints.txt", "README.md", "LICENSE", "sample"),
        *("indexmill", "indexmill_pipeline", "schemas", "storage", "tasks", "flows", "infra/wheel"),
        *(f"infra/{name}" for name in ("automations.py", "automations.yaml", "prefect.yaml")),
    }
    assert all((ROOT / one).exists() for one in copied)


def test_base_images_may_be_named_by_digest() -> None:
    compose = loaded("compose.yaml")
    lines = (INFRA / "Dockerfile").read_text(encoding="utf-8").splitlines()
    assert [line for line in lines if line.startswith("FROM")] == ["FROM ${BASE} AS builder", "FROM ${BASE}"]
    assert compose["services"]["worker"]["build"]["args"]["BASE"].startswith("${BASE_IMAGE:-")
    assert compose["services"]["postgres"]["image"].startswith("${POSTGRES_IMAGE:-")


def test_the_image_runs_as_a_numbered_user_without_a_shell_in_between() -> None:
    lines = (INFRA / "Dockerfile").read_text(encoding="utf-8").splitlines()
    runtime = lines[lines.index("FROM ${BASE}") :]
    assert [line for line in runtime if line.startswith("USER")] == ["USER 10001:10001"]
    assert [line for line in runtime if "pip" in line or "apt" in line] == []
    assert "STOPSIGNAL SIGTERM" in runtime
    (command,) = [line.partition(" ")[2] for line in runtime if line.startswith(("CMD", "ENTRYPOINT"))]
    assert json.loads(command) == ["indexmill", "--help"]


def test_the_prefect_server_of_compose_asks_for_a_password() -> None:
    services = loaded("compose.yaml")["services"]
    wanted = "${PREFECT_AUTH_STRING:?set PREFECT_AUTH_STRING}"
    assert services["prefect"]["environment"]["PREFECT_SERVER_API_AUTH_STRING"] == wanted
    for name in ("runner", "deploy"):
        assert services[name]["environment"]["PREFECT_API_AUTH_STRING"] == wanted
    assert [service.get("ports") for service in services.values() if "ports" in service] == [["127.0.0.1:4200:4200"]]


def test_the_dask_cluster_of_compose_speaks_tls_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import dask
    from distributed.security import Security

    services = loaded("compose.yaml")["services"]
    for name in ("scheduler", "worker", "runner"):
        for variable, value in services[name]["environment"].items():
            if variable.startswith("DASK_"):
                monkeypatch.setenv(variable, value)
        with dask.config.set(dask.config.merge(dask.config.config, dask.config.collect_env())):
            security = Security()
            assert security.require_encryption
            for role in ("client", "scheduler", "worker"):
                chosen = security.get_tls_config_for_role(role)
                assert (chosen["ca_file"], chosen["cert"]) == ("/certificates/certificate.pem",) * 2
                assert chosen["key"] == "/certificates/key.pem"
            assert dask.config.get("distributed.scheduler.http.routes") == []
            assert dask.config.get("distributed.worker.http.routes") == []
        assert "certificates:/certificates:ro" in services[name]["volumes"]
    assert services["runner"]["environment"]["INDEXMILL_DASK"] == "tls://scheduler:8786"
    assert "--protocol tls" in services["scheduler"]["command"]
    assert "tls://scheduler:8786 --protocol tls" in services["worker"]["command"]
    interpreter, *words = services["certificates"]["command"].replace("/certificates", str(tmp_path)).split()
    assert interpreter == "python"
    for _ in range(2):  # the second time it leaves them
        subprocess.run([sys.executable, *words], cwd=ROOT, check=True)
        found = {path.name: (path.stat().st_mode & 0o777, path.read_bytes()) for path in tmp_path.iterdir()}
        assert {name: mode for name, (mode, _) in found.items()} == {"certificate.pem": 0o600, "key.pem": 0o600}


def test_the_systemd_unit_is_confined() -> None:
    lines = (INFRA / "indexmill.service").read_text(encoding="utf-8").splitlines()
    said = dict(line.split("=", 1) for line in lines if "=" in line and not line.startswith("#"))
    on = [
        *("NoNewPrivileges", "PrivateTmp", "PrivateDevices", "ProtectHome", "ProtectKernelModules"),
        *("ProtectKernelTunables", "ProtectKernelLogs", "ProtectControlGroups", "RestrictNamespaces"),
        *("RestrictSUIDSGID", "RestrictRealtime", "LockPersonality"),
    ]
    assert {name: said.get(name) for name in on} == dict.fromkeys(on, "yes")
    assert (said["ProtectSystem"], said["ReadWritePaths"]) == ("strict", said["WorkingDirectory"])
    assert (said["UMask"], said["CapabilityBoundingSet"], said["StateDirectoryMode"]) == ("0077", "", "0700")
    assert set(said["RestrictAddressFamilies"].split()) == {"AF_UNIX", "AF_INET", "AF_INET6"}
    assert said["SystemCallFilter"] == "@system-service"
    assert said["OOMPolicy"] == "continue"  # a build outlives the process that reads corpus files
    assert "MemoryDenyWriteExecute" not in said  # OpenVINO and torch write kernels and execute them


@pytest.mark.parametrize(
    ("error", "name", "type_"),
    [
        (IndexmillError("e"), "Failed", "FAILED"),
        (BadInput("e"), "BadInput", "FAILED"),
        (GateRefused("e"), "Refused", "FAILED"),
        (BudgetReached("e"), "BudgetReached", "FAILED"),
        (DiskFull("e"), "DiskFull", "FAILED"),
        (LeaseLost("e"), "Skipped", "COMPLETED"),
    ],
)
def test_an_exit_code_is_a_state(error: IndexmillError, name: str, type_: str) -> None:
    from flows.build import state_of

    state = state_of(error)
    assert state is not None
    assert (state.name, state.type.value, state.message) == (name, type_, "e")


class _Hook(BaseHTTPRequestHandler):
    told: list[str] = []  # noqa: RUF012 - one server, one test

    def do_POST(self) -> None:
        self.told.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["text"])
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hook() -> Iterator[str]:
    server = HTTPServer(("127.0.0.1", 0), _Hook)
    threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    server.server_close()


@pytest.mark.slow
def test_the_deployments_run_on_a_prefect_server(tmp_path: Path, hook: str) -> None:
    """A server of one's own, the deployments put on it, runs by a worker; a failure calls the webhook."""
    prefect = str(Path(sys.executable).with_name("prefect"))
    port = _free_port()
    store = tmp_path / "store"
    path = write_settings(
        tmp_path / "i.yaml",
        settings(store, write_corpus(tmp_path / "c.jsonl", documents(6)), run={"workers": 1}),
    )
    keep = {name: value for name, value in os.environ.items() if not name.startswith("PREFECT_")}
    environment = keep | {
        "PREFECT_HOME": str(tmp_path / "prefect"),
        "PREFECT_API_URL": f"http://127.0.0.1:{port}/api",
        "PREFECT_SERVER_ANALYTICS_ENABLED": "false",
        "DO_NOT_TRACK": "1",
        "INDEXMILL_CONFIG": str(path),
        "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
    }

    def run(*command: str) -> str:
        done = subprocess.run(command, env=environment, cwd=ROOT, capture_output=True, text=True, timeout=180)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    def states() -> dict[str, str]:
        """What was run from a deployment: the names of the states, and their messages."""
        listed = [one for one in json.loads(run(prefect, "flow-run", "ls", "-o", "json")) if one["deployment_id"]]
        ended = [one["state"] for one in listed if one["state"]["type"] != "SCHEDULED"]
        return {state["name"]: state["message"] for state in ended}

    server = subprocess.Popen(
        [prefect, "server", "start", "--host", "127.0.0.1", "--port", str(port)],
        env=environment,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    try:
        _wait_for(lambda: _answers(port), 120)
        run(prefect, "work-pool", "create", "indexmill", "--type", "process")
        run(prefect, "--no-prompt", "deploy", "--prefect-file", "infra/prefect.yaml", "--all")
        assert run(sys.executable, "infra/automations.py", hook) == run(sys.executable, "infra/automations.py", hook)
        run(prefect, "deployment", "run", "indexmill-refresh/nightly")
        run(prefect, "worker", "start", "--pool", "indexmill", "--run-once")
        assert list(states().items()) == [("Published", "version 1: 6 documents, 6 passages, 0 rows refused")]
        path.write_text("embed: {model: unheard-of}")
        run(prefect, "deployment", "run", "indexmill-refresh/nightly")
        run(prefect, "worker", "start", "--pool", "indexmill", "--run-once")
        assert states().keys() == {"BadInput", "Published"}
        _wait_for(lambda: bool(_Hook.told), 60)
        assert "indexmill-refresh" in _Hook.told[0]
        assert "BadInput" in _Hook.told[0]
    finally:
        server.terminate()
        server.wait(30)


def _free_port() -> int:
    import socket

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _answers(port: int) -> bool:
    import urllib.request

    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/api/health", timeout=5) as answer:
            return answer.status == 200
    except OSError:
        return False


def _wait_for(ready: Any, seconds: float) -> None:
    import time

    deadline = time.monotonic() + seconds
    while not ready():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.5)
