"""An encoder is tested once on a machine, and on every other that takes part."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from indexmill.errors import IndexmillError
from indexmill.models import embedder as embedders
from indexmill.models.embedder import EncoderFingerprint, HashEmbedder, TokenEncoder
from storage.folder import FolderStore
from tasks.core import encoder
from tasks.core.encoder import OpenedEncoder, fingerprint_of
from tests.tasks.making import encoder_for


class Fresh(TokenEncoder):
    """An encoder as a process has it that has just opened it; it encodes nothing."""

    dimension = 64

    def __init__(self) -> None:
        self.reproducible = None

    @property
    def fingerprint(self) -> EncoderFingerprint:
        return dataclasses.replace(HashEmbedder().fingerprint, reproducible=self._is_reproducible())

    def _encoded(self, passes: Any) -> Any:
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
