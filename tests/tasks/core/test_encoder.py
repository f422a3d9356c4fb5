"""An encoder is tested once on a machine, and on every other that takes part."""

from __future__ import annotations

import dataclasses
import functools
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from indexmill.errors import CorruptBlob, IndexmillError
from indexmill.models import embedder as embedders
from indexmill.models.embedder import EncoderFingerprint, HashEmbedder, TokenEncoder
from storage.folder import FolderStore
from tasks.core import encoder
from tasks.core.encoder import OpenedEncoder, fingerprint_of, open_ahead
from tests.tasks.making import OPENING, encoder_for


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


def test_workers_of_the_machine_that_tested_an_encoder_rely_on_that(tests: list[object], store: FolderStore) -> None:
    opened = OpenedEncoder.of({}, *fingerprint_of(store.url, {}))
    assert len(tests) == 1
    encoder_for(store, opened)
    assert len(tests) == 1


def test_workers_of_other_machines_test_it_themselves(
    tests: list[object], store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened = OpenedEncoder.of({}, *fingerprint_of(store.url, {}))
    monkeypatch.setattr(encoder, "_machine", lambda: ["another", ""])
    encoder_for(store, opened)
    assert len(tests) == 2
    monkeypatch.setattr(embedders, "self_test", lambda one: False)
    with pytest.raises(IndexmillError, match="planned with"):
        encoder_for(store, opened)


def test_an_encoder_that_is_opened_ahead_is_opened_once(store: FolderStore, monkeypatch: pytest.MonkeyPatch) -> None:
    opened: list[object] = []
    begun, go_on = threading.Event(), threading.Event()

    @functools.cache
    def slowly(*_: object) -> HashEmbedder:
        opened.append(HashEmbedder())
        begun.set()
        assert go_on.wait(10)
        return HashEmbedder()

    monkeypatch.setattr(encoder, "_opened", slowly)
    open_ahead(store.url, OPENING)
    assert begun.wait(10)
    with ThreadPoolExecutor(1) as pool:
        waiting = pool.submit(fingerprint_of, store.url, OPENING)
        go_on.set()
        assert waiting.result()[0] == HashEmbedder().fingerprint.as_dict()
    assert len(opened) == 1


def test_what_fails_ahead_is_told_to_the_one_who_needs_it(
    store: FolderStore, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    tried: list[object] = []

    def damaged(*found: object) -> HashEmbedder:
        tried.append(found)
        raise CorruptBlob("the graph is damaged")

    monkeypatch.setattr(encoder, "_opened", damaged)
    open_ahead(store.url, OPENING)
    with pytest.raises(CorruptBlob, match="damaged"):
        fingerprint_of(store.url, OPENING)
    for thread in threading.enumerate():
        if thread.name == "open-encoder":
            thread.join(10)
    assert len(tried) == 2
    assert capfd.readouterr().err == ""
