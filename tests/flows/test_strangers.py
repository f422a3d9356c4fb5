"""Who else is on the machine: nothing that a build listens at answers anybody but the build itself."""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import socket
import ssl
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import psutil
import pytest

pytest.importorskip("distributed")

import dask

from flows.cluster import private_cluster
from flows.remote_cluster import remote_cluster
from flows.scratch import PREFIX
from indexmill.errors import BadInput
from schemas.config import DaskSettings, LlmSettings
from storage import runs
from storage.folder import init_folder, open_folder
from tests.corpora import documents, write_corpus
from tests.flows.children import asking, settings
from tests.flows.commands import Command, command, write_settings
from tests.llm_server import CANARY, Faults, LlmServer
from tests.paths import ROOT

NOBODY = 65534
OTHER = "another-secret-0123456789"


@dataclass(frozen=True)
class Held:
    """A build at work that waits for its language model."""

    run: Command
    run_id: str

    @property
    def processes(self) -> list[psutil.Process]:
        """The build and all that it started."""
        return [psutil.Process(pid) for pid in (self.run.pid, *self.run.processes())]

    def listening(self) -> list[int]:
        """The ports that any of them listens at."""
        return sorted(
            {
                connection.laddr.port
                for process in self.processes
                for connection in process.net_connections("inet")
                if connection.status == psutil.CONN_LISTEN
            }
        )

    def sockets(self) -> list[str]:
        """The names of their Unix sockets."""
        return sorted({one.laddr for process in self.processes for one in process.net_connections("unix") if one.laddr})

    def files(self) -> list[Path]:
        """All that is in its folder for temporary files."""
        return [self.run.temporary, *self.run.temporary.rglob("*")]


@pytest.fixture(scope="module")
def held(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Held]:
    """A first build by two workers, held by an endpoint that never answers."""
    folder = tmp_path_factory.mktemp("held")
    with LlmServer(faults=Faults(rule=lambda _: "hang", hang_seconds=600.0)) as server:
        plain = settings(
            folder / "store",
            write_corpus(folder / "corpus.jsonl", documents(24, words=12)),
            families={"lsh_tree": {"smallest": 2, "largest": 4}},
            llm=asking(server, timeout_seconds=600.0),
            run={"workers": 2},
        )
        file = write_settings(folder / "indexmill.yaml", plain)
        secrets = {"CANARY_KEY": CANARY, "OPENAI_API_KEY": OTHER, "PREFECT_API_KEY": OTHER}
        with command(folder, "build", "-c", file, "--json", environment=secrets) as run:
            deadline = time.monotonic() + 240
            while not server.chats:
                assert run.running, run.err
                assert time.monotonic() < deadline, run.err
                time.sleep(0.05)
            (started,) = runs.list_runs(open_folder(folder / "store"))
            held = Held(run, started.run_id)
            while not any(_refuses(port) for port in held.listening()):  # Prefect is slow to start
                assert time.monotonic() < deadline, run.err
                time.sleep(0.2)
            yield held


def _refuses(port: int) -> bool:
    """Whether HTTP is answered with 401."""
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    try:
        connection.request("GET", "/api/health")
        return connection.getresponse().status == 401
    except (OSError, http.client.HTTPException):
        return False
    finally:
        connection.close()


def _wants_a_certificate(port: int) -> bool:
    """Whether TLS is spoken, and ended where the client has no certificate."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    with socket.create_connection(("127.0.0.1", port), timeout=20) as plain:
        try:
            with context.wrap_socket(plain) as secured:
                secured.recv(1)
        except ssl.SSLError as error:
            return "CERTIFICATE_REQUIRED" in str(error)
        except OSError:
            pass
    return False


def stranger(held: Held, user: int | None, files: list[str]) -> dict[str, str]:
    """What another process does to a build, by what it tried."""
    order = {"user": user, "ports": held.listening(), "run": held.run_id, "sockets": held.sockets(), "files": files}
    if user is None:
        order["sockets"] = []
    done = subprocess.run(
        [sys.executable, "-m", "tests.flows.stranger", json.dumps(order)],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if not name.startswith(("DASK_", "PREFECT_"))},
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr
    found: dict[str, str] = json.loads(done.stdout.splitlines()[-1])
    return found


@pytest.mark.slow
def test_whatever_listens_wants_a_certificate_or_a_password(held: Held) -> None:
    ports = held.listening()
    secured = [port for port in ports if _wants_a_certificate(port)]
    refusing = [port for port in ports if _refuses(port)]
    assert len(secured) == 5  # the scheduler, two nannies, two workers
    assert len(refusing) == 1  # the Prefect server
    assert sorted([*secured, *refusing]) == ports


@pytest.mark.slow
def test_who_has_no_keys_or_others_is_told_nothing(held: Held) -> None:
    assert stranger(held, None, []) == {}


@pytest.mark.slow
def test_files_and_sockets_are_in_folders_of_the_user_alone(held: Held) -> None:
    (folder,) = {path.relative_to(held.run.temporary).parts[0][: len(PREFIX)] for path in held.files()[1:]}
    assert folder == PREFIX
    for path in held.run.temporary.iterdir():
        assert stat.S_IMODE(path.stat().st_mode) == 0o700, path
    for name in held.sockets():
        assert not name.startswith(("\0", "@")), name  # those without a file are open to everybody
        (private,) = [path for path in Path(name).parents if path.name.startswith(PREFIX)]
        assert stat.S_IMODE(private.stat().st_mode) == 0o700
        assert stat.S_IMODE(Path(name).stat().st_mode) == 0o600
    keys = [path for path in held.files() if path.is_file() and b"PRIVATE KEY" in path.read_bytes()]
    assert [stat.S_IMODE(path.stat().st_mode) for path in keys] == [0o600]


@pytest.mark.slow
def test_no_process_of_a_build_was_started_with_a_secret(held: Held) -> None:
    for process in held.processes:
        if process.pid != held.run.pid:
            started = Path(f"/proc/{process.pid}/environ").read_bytes()
            assert CANARY.encode() not in started
            assert OTHER.encode() not in started
        assert "PRIVATE KEY" not in " ".join(process.cmdline())


def variables() -> dict[str, str]:
    return dict(os.environ)


@pytest.mark.slow
def test_workers_have_a_key_only_where_a_language_model_may_be_asked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = init_folder(tmp_path / "store").root
    secret = ("OPENAI_API_KEY", "CANARY_WORD", "SOME_TOKEN", "PREFECT_API_AUTH_STRING")
    for name in secret:
        monkeypatch.setenv(name, OTHER)
    monkeypatch.setenv("HARMLESS", "yes")
    asking = LlmSettings(backend="openai", model="tester", api_key_env="CANARY_WORD")
    silent = LlmSettings(api_key_env="CANARY_WORD")
    found = {}
    for llm in (asking, silent):
        with private_cluster(1, store, (llm,)) as client:
            (found[llm.backend],) = client.run(variables).values()
    assert [name for name in secret if name in found["extractive"]] == []
    assert [name for name in secret if name in found["openai"]] == list(secret[:3])
    assert {one["HARMLESS"] for one in found.values()} == {"yes"}
    assert {name: os.environ[name] for name in secret} == dict.fromkeys(secret, OTHER)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("address", "settings", "message"),
    [
        ("tls://127.0.0.1:1", {}, "there are no certificates"),
        ("tcp://127.0.0.1:1", {"distributed.comm.require-encryption": True}, "requires encryption"),
        ("127.0.0.1:1", {"distributed.comm.require-encryption": True}, "requires encryption"),
        ("127.0.0.1:1", {"distributed.comm.default-scheme": "tls"}, "there are no certificates"),
    ],
)
def test_an_address_that_does_not_fit_the_settings_of_dask_is_bad_input(
    address: str, settings: dict[str, object], message: str, tmp_path: Path
) -> None:
    with (
        dask.config.set(settings),
        pytest.raises(BadInput, match=message),
        remote_cluster(DaskSettings(address=address), tmp_path),
    ):
        pass


@pytest.mark.slow
@pytest.mark.skipif(os.getuid() != 0, reason="only root can become another user")
def test_another_user_of_the_machine_gets_nowhere(held: Held) -> None:
    environments = [f"/proc/{process.pid}/environ" for process in held.processes]
    files = [*map(str, held.files()[1:]), *environments]
    assert files != environments
    with contextlib.ExitStack() as stack:
        for path in held.run.temporary.parents:  # the tests' own folders are private: let it come as far as the run's
            mode = path.stat().st_mode
            if not mode & stat.S_IXOTH and path.owner() == "root":
                path.chmod(mode | 0o055)
                stack.callback(path.chmod, stat.S_IMODE(mode))
        assert stranger(held, NOBODY, files) == {}
