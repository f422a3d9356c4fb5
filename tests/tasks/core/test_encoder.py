"""An encoder is tested once on a machine, and on every other that takes part."""

from __future__ import annotations

import dataclasses
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import CorruptBlob, IndexmillError
from indexmill.models import embedder as embedders
from indexmill.models.embedder import EncoderFingerprint, HashEmbedder, TokenEncoder
from storage.folder import init_store
from tasks.core import encoder
from tasks.core.encoder import OpenedEncoder, encoder_of, fingerprint_of, open_ahead
from tasks.core.stage import Inputs, Job


class Fresh(TokenEncoder):
    """An encoder as a process has it that has just opened it; it encodes nothing."""

    dimension = 64

    def __init__(self) -> None:
        self.reproducible = None

    @property
    def fingerprint(self) -> EncoderFingerprint:
        return dataclasses.replace(HashEmbedder().fingerprint, reproducible=self._is_reproducible())

    def _hidden(self, ids: Any) -> Any:
        raise NotImplementedError


@pytest.fixture
def tests(monkeypatch: pytest.MonkeyPatch) -> list[object]:
    """The encoders that were tested. Each call opens one anew, as if it were in another process."""
    found: list[object] = []
    monkeypatch.setattr(encoder, "_open", lambda store, opening: Fresh())
    monkeypatch.setattr(embedders, "self_test", lambda one: found.append(one) is None)
    return found


def opened_by(opened: OpenedEncoder, folder: Path) -> object:
    """The encoder of a job of that run."""
    settings = {"opening": opened.opening, "encoder": opened.numbers}
    return encoder_of(Inputs(init_store(folder), Job("", "", "", str(folder), "run", {}, settings), encoder.STAGE))


def test_workers_of_the_machine_that_tested_an_encoder_rely_on_that(tests: list[object], tmp_path: Path) -> None:
    opened = OpenedEncoder.of({}, *fingerprint_of(init_store(tmp_path).url, {}))
    assert len(tests) == 1
    opened_by(opened, tmp_path)
    assert len(tests) == 1


def test_workers_of_other_machines_test_it_themselves(
    tests: list[object], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenedEncoder.of({}, *fingerprint_of(init_store(tmp_path).url, {}))
    monkeypatch.setattr(encoder, "_machine", lambda: ["another", ""])
    opened_by(opened, tmp_path)
    assert len(tests) == 2
    monkeypatch.setattr(embedders, "self_test", lambda one: False)
    with pytest.raises(IndexmillError, match="planned with"):
        opened_by(opened, tmp_path)


OPENING = {"backend": "hash", "precision": "f32", "path": "", "files": {}}


def test_an_encoder_that_is_opened_ahead_is_opened_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    begun, go_on = threading.Event(), threading.Event()

    @functools.cache
    def slowly(*_: object) -> HashEmbedder:
        opened.append(HashEmbedder())
        begun.set()
        assert go_on.wait(10)
        return HashEmbedder()

    monkeypatch.setattr(encoder, "_opened", slowly)
    open_ahead(init_store(tmp_path).url, OPENING)
    assert begun.wait(10)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fingerprint_of, init_store(tmp_path).url, OPENING)
        go_on.set()
        assert waiting.result()[0] == HashEmbedder().fingerprint.as_dict()
    assert len(opened) == 1


def test_what_fails_ahead_is_told_to_the_one_who_needs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tried: list[object] = []

    def damaged(*found: object) -> HashEmbedder:
        tried.append(found)
        raise CorruptBlob("the graph is damaged")

    monkeypatch.setattr(encoder, "_opened", damaged)
    open_ahead(init_store(tmp_path).url, OPENING)
    with pytest.raises(CorruptBlob, match="damaged"):
        fingerprint_of(init_store(tmp_path).url, OPENING)
    for thread in threading.enumerate():
        if thread.name == "open-encoder":
            thread.join(10)
    assert len(tried) == 2
    assert capfd.readouterr().err == ""
