"""The encoder of questions: carried by the snapshot, named by it, or asked for."""

from __future__ import annotations

import base64
import json
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from pydantic import JsonValue

import indexmill
from indexmill import CorruptBlob, ModelUnavailable
from indexmill.models.openvino_encoder import import_openvino
from indexmill.store.canonical import canonical_json
from indexmill.store.layout import blob_path
from tests.indexmill.small_snapshot import EMBEDDER, WORLD, SnapshotWriter

SETTINGS = {"dimension": 64, "max_tokens": 32, "model": "tiny", "pooling": "mean", "weights": "0" * 64}
WORDS = ["[UNK]", "ada", "venn", "paid", "for", "the", "bridge", "tallow", "is", "a", "town", "of", "lamps"]


@pytest.fixture(scope="module")
def carried(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    """The files of a tiny encoder: a word's row of a table is its hidden state."""
    pytest.importorskip("tokenizers")
    pytest.importorskip("openvino")
    openvino = import_openvino()
    from openvino import opset13
    from tokenizers import Tokenizer, models, normalizers, pre_tokenizers

    numbered = {word: i for i, word in enumerate(WORDS)}
    tokenizer = Tokenizer(models.WordLevel(numbered, unk_token="[UNK]"))  # noqa: S106 - not that kind of token
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.Whitespace()
    table = np.random.default_rng(0).standard_normal((len(WORDS), 64)).astype(np.float32)
    ids = opset13.parameter([-1, -1], np.int64)
    hidden = opset13.gather(opset13.constant(table), ids, opset13.constant(np.int64(0)))
    folder = tmp_path_factory.mktemp("encoder")
    openvino.save_model(openvino.Model([hidden], [ids]), folder / "openvino.xml", compress_to_fp16=False)
    files = {path.name: path.read_bytes() for path in folder.iterdir()}
    return files | {"tokenizer.json": tokenizer.to_str().encode(), "encoder.json": canonical_json(SETTINGS)}


def publish(path: Path, files: dict[str, bytes], **encoder: JsonValue) -> Path:
    """A store of a few passages that carries some files of an encoder, which its manifest describes."""
    writer = SnapshotWriter(path)
    writer.shard("p", WORLD["p0"])
    for name, data in files.items():
        writer.file(f"encoder/{name}", data)
    writer.models = {"encoder": encoder or {"backend": "openvino", "precision": "f32"}}
    writer.publish()
    return path


def test_a_snapshot_encodes_questions_with_the_encoder_it_carries(tmp_path: Path, carried: dict[str, bytes]) -> None:
    with indexmill.open(publish(tmp_path / "store", carried)) as snapshot:
        vectors = snapshot.encode(["Ada Venn", "the bridge", "Ada Venn"])
        assert vectors.shape == (3, 64)
        assert np.linalg.norm(vectors, axis=1) == pytest.approx([1, 1, 1], abs=1e-5)
        assert vectors[0].tobytes() == vectors[2].tobytes() == snapshot.encode(["Ada Venn"])[0].tobytes()
        assert len(snapshot.retrieve("Who paid for the bridge?", k=2)) == 2
        graph = snapshot.artifact("encoder/openvino.bin").digest
    path = tmp_path / "store" / blob_path(graph)
    path.unlink()
    path.write_bytes(b"\0" * 10)
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob):
        snapshot.encode(["Ada Venn"])


CLOSING = """
import os, signal, sys
from threading import Thread
from indexmill.models.openvino_encoder import OpenVINOEmbedder

encoders = [OpenVINOEmbedder.open(sys.argv[1]) for _ in range(2)]

def close():
    while encoders:
        del encoders[0]

if sys.argv[2] == "the same thread":
    close()
else:
    thread = Thread(target=close)
    thread.start()
    thread.join()
signal.signal(signal.SIGTERM, lambda *_: print("handled"))
os.kill(os.getpid(), signal.SIGTERM)
"""


@pytest.mark.slow
@pytest.mark.parametrize("closer", ["the same thread", "another thread"])
def test_a_process_handles_signals_after_it_closed_encoders(
    tmp_path: Path, carried: dict[str, bytes], closer: str
) -> None:
    for name, data in carried.items():
        (tmp_path / name).write_bytes(data)
    done = subprocess.run(
        [sys.executable, "-c", CLOSING, str(tmp_path), closer], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "handled\n"), done.stderr


@pytest.mark.parametrize("model", ["nobody/has-this-model", "all-MiniLM-L6-v2", ""])
def test_without_the_same_model_here_vectors_are_asked_for(tmp_path: Path, model: str) -> None:
    with indexmill.open(publish(tmp_path / "store", {}, backend="torch", model=model, weights="0" * 64)) as snapshot:
        with pytest.raises(ModelUnavailable, match="vectors="):
            snapshot.retrieve("bridge")
        assert len(snapshot.retrieve_batch(["bridge"], k=2, vectors=EMBEDDER.encode(["bridge"]))[0]) == 2


def _characters(trie: int) -> str:
    return base64.b64encode(trie.to_bytes(4, "little") + bytes(4)).decode()


BAD_STEPS: dict[str, dict[str, object]] = {
    "a table of characters that says it is long": {
        "normalizer": {"type": "Precompiled", "precompiled_charsmap": _characters((1 << 32) - 4)}
    },
    "a table of characters that is none": {"normalizer": {"type": "Precompiled", "precompiled_charsmap": "%"}},
    "a step that panics": {"pre_tokenizer": {"type": "FixedLength", "length": 0}},
    "a template without its tokens": {
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [],
            "special_tokens": {},
        }
    },
    "an expression that does not end": {
        "pre_tokenizer": {
            "type": "Split",
            "pattern": {"Regex": "(a+)+$"},
            "behavior": "Isolated",
            "invert": False,
        }
    },
    "texts that grow": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Prepend", "prepend": "x" * 1_000_000}] * 50}
    },
    "steps without end": {
        "normalizer": {"type": "Sequence", "normalizers": [{"type": "Lowercase"}] * 20_000},
    },
    "an unknown word without a token": {"model": {"type": "WordLevel", "vocab": {"ada": 0}, "unk_token": "[NO]"}},
}

ENCODE = """
import resource, sys, indexmill
resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30))
with indexmill.open(sys.argv[1]) as snapshot:
    try:
        snapshot.encode(["Ada Venn paid " + "a" * 60 + "!"])
    except indexmill.IndexmillError as error:
        print(type(error).__name__, error)
"""


@pytest.mark.slow
@pytest.mark.parametrize("what", BAD_STEPS)
def test_a_tokenizer_that_fails_is_corrupt(tmp_path: Path, carried: dict[str, bytes], what: str) -> None:
    tokenizer = json.loads(carried["tokenizer.json"]) | BAD_STEPS[what]
    path = publish(tmp_path / "store", carried | {"tokenizer.json": json.dumps(tokenizer).encode()})
    ran = subprocess.run(
        [sys.executable, "-c", ENCODE, str(path)], capture_output=True, text=True, timeout=60, check=False
    )
    assert ran.returncode == 0
    assert ran.stdout.startswith("CorruptBlob ")


@pytest.mark.parametrize(
    ("name", "data"),
    [
        ("tokenizer.json", b"[]"),
        ("tokenizer.json", b"\xff"),
        ("tokenizer.json", b"{" * 100_000),
        ("tokenizer.json", b'{"normalizer": ' + b"[" * 100_000 + b"]" * 100_000 + b"}"),
        ("encoder.json", b'{"max_tokens": 1e400}'),
        ("encoder.json", b'{"max_tokens": 0}'),
        ("encoder.json", b"{}"),
        ("encoder.json", b'"' + b"a" * (1 << 20) + b'"'),
        ("openvino.xml", b"<net/>"),
        ("openvino.bin", b""),
    ],
)
def test_a_file_of_an_encoder_that_is_none_is_corrupt(
    tmp_path: Path, carried: dict[str, bytes], name: str, data: bytes
) -> None:
    path = publish(tmp_path / "store", carried | {name: data})
    with indexmill.open(path) as snapshot, pytest.raises(CorruptBlob):
        snapshot.encode(["Ada Venn"])


@pytest.mark.parametrize("error", [MemoryError("no memory"), OSError(24, "Too many open files"), ImportError("no tbb")])
def test_what_this_machine_lacks_is_not_the_fault_of_the_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(texts: list[str]) -> np.ndarray:
        raise error

    with indexmill.open(publish(tmp_path / "store", {"encoder.json": b"{}"})) as snapshot:
        monkeypatch.setattr(snapshot, "encoder", lambda: SimpleNamespace(encode_queries=fails))
        with pytest.raises(type(error), match=str(error.args[-1])):
            snapshot.encode(["bridge"])


@pytest.mark.parametrize(("carries", "expected"), [(True, CorruptBlob), (False, RuntimeError)])
def test_only_the_encoder_that_a_snapshot_carries_is_its_artifact(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, carries: bool, expected: type[Exception]
) -> None:
    def fails(texts: list[str]) -> np.ndarray:
        raise RuntimeError("CUDA error")

    with indexmill.open(publish(tmp_path / "store", {"encoder.json": b"{}"} if carries else {})) as snapshot:
        monkeypatch.setattr(snapshot, "encoder", lambda: SimpleNamespace(encode_queries=fails))
        with pytest.raises(expected, match="CUDA error"):
            snapshot.encode(["bridge"])
