"""Tokens, rates, an end without losses, and versions that change under load: with real server processes."""

from __future__ import annotations

import datetime
import json
import os
import shutil
import signal
import ssl
import stat
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from indexmill.errors import BadInput, ConfigurationError
from indexmill.serve.callers import CallerTokens, add_token
from indexmill.serve.rejections import Unauthorised
from tests.indexmill.running import Run
from tests.indexmill.serve.serving import publish, serving
from tests.indexmill.small_snapshot import point
from tests.paths import ROOT

ASKED = {"question": "This is the version", "method": "bm25", "k": 1}

SLOW = """
import sys, time
from indexmill.snapshot import Snapshot
real = Snapshot.retrieve_batch
def slow(self, questions, *how, **more):
    if "slow" in questions:
        time.sleep(1.5)
    return real(self, questions, *how, **more)
Snapshot.retrieve_batch = slow
from indexmill.command import run
run()
"""
"""The command with an index that takes its time for one question."""


def test_a_token_is_printed_once_and_kept_as_a_digest(tmp_path: Path, run: Run) -> None:
    path = tmp_path / "tokens.json"
    token = run.json("serve", "--tokens", path, "--new-token", "search-team")["token"]
    other = run.text("serve", "--tokens", path, "--new-token", "other").strip()
    assert token not in path.read_text()
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    tokens = CallerTokens(path)
    assert tokens.caller(f"Bearer {token}").name == "search-team"
    assert tokens.caller(f"bearer {other}").name == "other"
    for header in (None, "", "Bearer", f"Basic {token}", f"Bearer {token}x", "Bearer \udcff", f"Bearer {token[:-1]}"):
        with pytest.raises(Unauthorised):
            tokens.caller(header)
    with pytest.raises(BadInput, match="has a token named 'other'"):
        add_token(path, "other")
    with pytest.raises(BadInput, match="is not a valid token name"):
        add_token(path, "a b")


def test_principals_are_kept_and_unknown_fields_refused(tmp_path: Path) -> None:
    path = tmp_path / "tokens.json"
    token = add_token(path, "reader")
    record = json.loads(path.read_text())["tokens"][0]
    path.write_text(json.dumps({"tokens": [{**record, "principals": ["staff", "legal"]}]}))
    assert CallerTokens(path).caller(f"Bearer {token}").principals == ("staff", "legal")
    for wrong in ({"tokens": [{**record, "principal": ["x"]}]}, {"tokens": [{**record, "sha256": "9"}]}, {"token": []}):
        path.write_text(json.dumps(wrong))
        with pytest.raises(ConfigurationError, match="expected"):
            CallerTokens(path)
    path.write_text('{"tokens": []}')
    with pytest.raises(ConfigurationError, match="contains no token"):
        CallerTokens(path)


def test_a_withdrawn_token_is_refused_and_a_broken_file_changes_nothing(tmp_path: Path) -> None:
    path, now = tmp_path / "tokens.json", [0.0]
    one, two = add_token(path, "one"), add_token(path, "two")
    tokens = CallerTokens(path, lambda: now[0])
    whole = path.read_text()
    path.write_text("{")
    now[0] += 10
    assert tokens.caller(f"Bearer {one}").name == "one"
    path.write_text(json.dumps({"tokens": json.loads(whole)["tokens"][1:]}))
    now[0] += 10
    assert tokens.caller(f"Bearer {two}").name == "two"
    with pytest.raises(Unauthorised):
        tokens.caller(f"Bearer {one}")


def test_other_machines_are_not_served_without_tokens(tmp_path: Path, run: Run) -> None:
    assert run("serve", tmp_path, "--host", "0.0.0.0") == 2  # noqa: S104
    assert "--insecure" in run.err
    assert run("serve", tmp_path, "--new-token", "x") == 2
    assert run("serve", tmp_path, "--tls-cert", "c.pem") == 2
    assert run("serve", tmp_path / "nothing") == 2


@pytest.mark.slow
def test_tokens_and_rates_hold_on_the_wire(tmp_path: Path) -> None:
    publish(tmp_path / "store", 1)
    token, other = (add_token(tmp_path / "tokens.json", name) for name in ("one", "two"))
    with serving(tmp_path / "store", "--tokens", tmp_path / "tokens.json", "--rate", 2, "--host", "0.0.0.0") as server:  # noqa: S104
        client = httpx.Client(base_url=server.url.replace("0.0.0.0", "127.0.0.1"), trust_env=False)  # noqa: S104
        for path in ("/versions", "/metrics", "/nothing", "/mcp"):
            refused = client.get(path)
            assert refused.status_code == 401, path
            assert refused.headers["www-authenticate"] == "Bearer"
        for path in ("/health", "/ready", "/openapi.json"):
            assert client.get(path).status_code == 200
        headers = {"authorization": f"Bearer {token}"}
        answers = [client.post("/retrieve", json=ASKED, headers=headers) for _ in range(12)]
        statuses = [one.status_code for one in answers]
        assert statuses[:4] == [200] * 4
        assert 429 in statuses
        limited = answers[statuses.index(429)]
        assert limited.json()["error"]["code"] == "rate_limited"
        assert int(limited.headers["retry-after"]) >= 1
        answer = client.post("/retrieve", json=ASKED, headers={"authorization": f"Bearer {other}"})
        assert answer.status_code == 200
        client.close()
    assert {line["caller"] for line in server.requests("/retrieve")} == {"one", "two"}
    assert token not in json.dumps(server.log)


@pytest.mark.slow
def test_a_full_queue_a_deadline_and_health_meanwhile(tmp_path: Path) -> None:
    publish(tmp_path / "store", 1)
    slow = {**ASKED, "question": "slow"}
    with (
        serving(tmp_path / "store", "--max-waiting", 1, "--seconds", 0.7, program=SLOW) as server,
        ThreadPoolExecutor(4) as pool,
    ):
        first = pool.submit(server.client.post, "/retrieve", json=slow)
        time.sleep(0.2)
        second = pool.submit(server.client.post, "/retrieve", json={**ASKED, "k": 2})
        time.sleep(0.2)
        began = time.monotonic()
        assert server.client.get("/health").status_code == 200
        full = server.client.post("/retrieve", json=ASKED)
        assert time.monotonic() - began < 1  # while the first is under way
        assert (full.status_code, full.json()["error"]["code"]) == (503, "busy")
        assert full.headers["retry-after"] == "1"
        for late in (first, second):
            assert late.result().status_code == 504
            assert late.result().json()["error"]["code"] == "deadline"
        time.sleep(1)
        assert server.client.post("/retrieve", json=ASKED).status_code == 200


@pytest.mark.slow
def test_sigterm_loses_no_request_and_a_second_one_ends_at_once(tmp_path: Path) -> None:
    publish(tmp_path / "store", 1)
    slow = {**ASKED, "question": "slow"}
    with serving(tmp_path / "store", "--linger", 1.5, program=SLOW) as server, ThreadPoolExecutor(4) as pool:
        under_way = pool.submit(server.client.post, "/retrieve", json=slow)
        time.sleep(0.3)
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.2)
        ready = server.client.get("/ready")
        assert (ready.status_code, ready.json()["error"]["code"]) == (503, "draining")
        assert ready.headers["connection"] == "close"
        lingering = pool.submit(server.client.post, "/retrieve", json=ASKED)
        assert under_way.result().status_code == 200
        assert lingering.result().status_code == 200
        assert server.process.wait(20) == 0
        with pytest.raises(httpx.ConnectError):
            server.client.get("/health")
    with serving(tmp_path / "store", "--linger", 30, program=SLOW) as server:
        server.process.send_signal(signal.SIGTERM)
        time.sleep(0.3)
        assert server.client.get("/ready").status_code == 503
        server.process.send_signal(signal.SIGTERM)
        assert server.process.wait(5) == 128 + signal.SIGTERM


@pytest.mark.slow
def test_answers_follow_the_alias_and_none_mixes_versions(tmp_path: Path) -> None:
    store = tmp_path / "store"
    publish(store, 1)
    from storage.folder import open_folder

    point(open_folder(store), "prod", 1)
    with serving(store, "--alias", "prod", "--poll", 0.1) as server, ThreadPoolExecutor(8) as pool:
        over = threading.Event()

        def ask() -> list[int]:
            seen = []
            while not over.is_set():
                found = server.client.post("/retrieve", json=ASKED)
                assert found.status_code == 200
                (hit,) = found.json()["hits"]
                assert hit["text"] == f"This is the version {found.json()['version']}."
                assert hit["version"] == found.json()["version"]
                seen.append(hit["version"])
            return seen

        asking = [pool.submit(ask) for _ in range(8)]
        publish(store, 2)
        time.sleep(0.5)
        assert server.client.get("/ready").json()["version"] == 1  # newer, and the alias is not there
        point(open_folder(store), "prod", 2, number=2)
        for _ in range(100):
            if server.client.get("/ready").json()["version"] == 2:
                break
            time.sleep(0.1)
        time.sleep(0.2)
        over.set()
        for one in asking:
            versions = one.result()
            assert versions == sorted(versions)
            assert set(versions) == {1, 2}
        assert [one["version"] for one in server.client.get("/versions").json()["versions"]] == [1, 2]


@pytest.mark.slow
def test_an_exported_folder_is_served_by_its_manifest(exported: Path) -> None:
    with serving(exported, "--no-mcp", warm="dense") as server:
        versions = server.client.get("/versions").json()
        assert (versions["served"]["version"], versions["versions"]) == (None, [])
        assert len(versions["served"]["manifest"]) == 64
        assert server.client.post("/mcp", json={}).status_code == 404


@pytest.mark.slow
def test_it_drains_as_the_first_process_of_a_container(tmp_path: Path) -> None:
    unshare = ("unshare", "--pid", "--fork", "--mount-proc", "--kill-child")
    if (
        shutil.which("unshare") is None
        or subprocess.run([*unshare, "true"], check=False, capture_output=True).returncode
    ):
        pytest.skip("no process namespaces here")
    publish(tmp_path / "store", 1)
    with serving(tmp_path / "store", prefix=unshare, program=SLOW) as server, ThreadPoolExecutor(1) as pool:
        under_way = pool.submit(server.client.post, "/retrieve", json={**ASKED, "question": "slow"})
        time.sleep(0.3)
        outer = server.process.pid
        (first,) = Path(f"/proc/{outer}/task/{outer}/children").read_text().split()
        os.kill(int(first), signal.SIGTERM)
        assert under_way.result().status_code == 200
        assert server.process.wait(20) == 0


@pytest.mark.slow
def test_it_speaks_tls(tmp_path: Path) -> None:
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "localhost")])
    today = datetime.datetime.now(datetime.UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(today)
        .not_valid_after(today + datetime.timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "cert.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    private = (serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    (tmp_path / "key.pem").write_bytes(key.private_bytes(serialization.Encoding.PEM, *private))
    publish(tmp_path / "store", 1)
    with serving(tmp_path / "store", "--tls-cert", tmp_path / "cert.pem", "--tls-key", tmp_path / "key.pem") as server:
        assert server.url.startswith("https://")
        trusting = ssl.create_default_context(cafile=tmp_path / "cert.pem")
        url = server.url.replace("127.0.0.1", "localhost")
        with httpx.Client(verify=trusting, base_url=url, trust_env=False) as client:
            assert client.post("/retrieve", json=ASKED).json()["version"] == 1


@pytest.mark.slow
@pytest.mark.parametrize(("command", "package"), [("serve", "starlette"), ("serve", "uvicorn"), ("mcp", "mcp")])
def test_a_missing_package_is_named_with_its_extra(published: Path, command: str, package: str) -> None:
    program = f"import sys; sys.modules[{package!r}] = None\nfrom indexmill.command import run; run()"
    words = [sys.executable, "-c", program, command, str(published)]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 2
    assert f"{package}, which is not installed: pip install 'indexmill[{command}]'" in done.stderr
