"""An encoder is tested once on a machine, and on every other that takes part."""

from __future__ import annotations

import dataclasses
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import ConfigurationError, IndexmillError, ModelUnavailable
from indexmill.models import embedder as embedders
from indexmill.models.embedder import EncoderFingerprint, HashEmbedder, TokenEncoder
from indexmill.store.canonical import digest_of
from schemas.config import EmbedSettings
from storage.folder import FolderStore, init_folder
from tasks.core import encoder
from tasks.core.encoder import OpenedEncoder, choose_encoder, fingerprint_of
from tests.encoders import needs_model
from tests.paths import ROOT
from tests.tasks.making import encoder_for

CALIBRATION = ROOT / "tasks" / "core" / "calibration.txt"


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


@needs_model
def test_torch_runs_no_quantised_encoder() -> None:
    with pytest.raises(ConfigurationError, match=r"precision is int8.*set embed\.backend to openvino"):
        choose_encoder(EmbedSettings(backend="torch", precision="int8"))


@needs_model
def test_a_quantised_encoder_is_another_part_and_needs_nncf_where_it_is_made(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = init_folder(tmp_path / "store")
    plain = choose_encoder(EmbedSettings()).conversion(store)
    assert plain is not None
    assert plain.quantised is None
    monkeypatch.setattr(metadata, "version", lambda name: {"nncf": "3.4.0"}[name])
    quantised = choose_encoder(EmbedSettings(precision="int8")).conversion(store)
    assert quantised is not None
    assert quantised.quantised == {"calibration": digest_of(CALIBRATION.read_bytes()), "nncf": "3.4.0"}
    assert "quantised" not in plain.keyed()
    assert quantised.keyed() == {**plain.keyed(), "quantised": quantised.quantised}

    def missing(name: str) -> str:
        raise metadata.PackageNotFoundError(name)

    monkeypatch.setattr(metadata, "version", missing)
    with pytest.raises(ModelUnavailable, match=r"needs the package nncf.*pip install 'indexmill\[int8\]'"):
        choose_encoder(EmbedSettings(precision="int8")).conversion(store)
