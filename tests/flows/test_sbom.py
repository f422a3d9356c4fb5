"""The software bill of materials in a version: asked for, it is an artifact like the others; else nothing of it."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

import indexmill
from flows.export import export_snapshot
from flows.sign import sign
from indexmill.errors import CorruptBlob, NotFound
from indexmill.store.manifest import Manifest
from indexmill.store.reader import StoreReader
from indexmill.store.sbom_reader import SBOM, read_sbom
from indexmill.store.signatures import new_key
from indexmill.store.verify import verify
from storage import signature_records
from storage.folder import open_folder
from tasks.core.report import Silent
from tasks.stages.sbom import software
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run
from tests.storage.quick import quick_folder

FAMILIES: dict[str, Any] = {name: {"enabled": False} for name in ("tri_graph", "zoom_graph", "lsh_tree")}


def with_bill(store: Path, corpus: Path, sbom: bool = True) -> dict[str, Any]:
    return settings(store, corpus, run={"sbom": sbom}, families=FAMILIES)


@pytest.fixture(scope="module")
def folder() -> Iterator[Path]:
    """The stores `plain` and `billed` of one corpus, the second with a bill."""
    with quick_folder() as made:
        corpus = write_corpus(made / "corpus.jsonl", documents(3, words=30))
        for name in ("plain", "billed"):
            assert build(with_bill(made / name, corpus, sbom=name == "billed")).published
        yield made


def manifest(store: Path, version: int | None = None) -> Manifest:
    with indexmill.open(store, version) as snapshot:
        return snapshot.manifest


def test_the_bill_is_one_artifact_more_and_nothing_else(folder: Path) -> None:
    plain, billed = (manifest(folder / name) for name in ("plain", "billed"))
    assert plain.artifact(SBOM) is None
    assert [one for one in billed.artifacts if one.name != SBOM] == list(plain.artifacts)
    artifact = billed.artifact(SBOM)
    assert artifact is not None
    assert (artifact.kind, artifact.rows, artifact.schema_) == ("file", None, None)
    same = plain.model_dump(exclude={"artifacts", "lineage"})
    assert billed.model_dump(exclude={"artifacts", "lineage"}) == same


def test_it_lists_this_environment_and_no_path_of_the_machine(folder: Path) -> None:
    with indexmill.open(folder / "billed") as snapshot:
        data = snapshot.file(SBOM).read_bytes()
        found = read_sbom(snapshot.file(SBOM))
    names = {one["name"] for one in found["components"]}
    assert {"numpy", "pyarrow", "prefect", "CPython"} <= names
    assert "hash" not in names  # the double has no weights
    assert b"file:" not in data
    assert str(Path.home()).encode() not in data


def test_it_is_verified_exported_and_shown(folder: Path, run: Run, tmp_path: Path) -> None:
    store = folder / "billed"
    assert verify(StoreReader(store)).ok
    export_snapshot(open_folder(store), 1, tmp_path / "out", progress=Silent())
    with indexmill.open(tmp_path / "out") as exported:
        assert exported.file(SBOM) == tmp_path / "out" / SBOM
    assert run("verify", "--store", tmp_path / "out") == 0
    expected = json.loads((tmp_path / "out" / SBOM).read_bytes())
    for where in (store, tmp_path / "out"):
        assert run("show", "--sbom", "--store", where) == 0
        assert json.loads(run.out) == expected
    card = (tmp_path / "out" / "README.md").read_text()
    assert f"`{SBOM}` (CycloneDX): {len(expected['components'])} components" in card
    (tmp_path / "out" / SBOM).write_bytes((tmp_path / "out" / SBOM).read_bytes()[:-2] + b" \n")
    assert run("verify", "--store", tmp_path / "out") == 1
    assert run("show", "--sbom", "--same-as", "--store", store) == 2


def test_a_snapshot_without_one_says_how_to_have_one(folder: Path, run: Run) -> None:
    assert run("show", "--sbom", "--store", folder / "plain") == 1
    assert "set `run: {sbom: true}`" in run.err
    with indexmill.open(folder / "plain") as snapshot, pytest.raises(NotFound):
        snapshot.file(SBOM)


def test_a_statement_names_it(folder: Path) -> None:
    store = open_folder(folder / "billed")
    sign(store, 1, new_key())
    payload = base64.b64decode(json.loads(signature_records.envelopes(store, 1)[-1])["payload"])
    artifact = manifest(folder / "billed").artifact(SBOM)
    assert artifact is not None
    assert json.loads(payload)["predicate"]["sbom"] == artifact.digest


@pytest.mark.slow
def test_the_same_environment_makes_no_version_and_another_one_makes_one(folder: Path) -> None:
    store, corpus = folder / "billed", folder / "corpus.jsonl"
    assert not build(with_bill(store, corpus)).published
    installed = software.installed

    def upgraded(root: str, extra: str) -> list[dict[str, Any]]:
        return [one | {"version": "99"} if one["name"] == "click" else one for one in installed(root, extra)]

    with patch.object(software, "installed", upgraded):
        assert build(with_bill(store, corpus)).version == 2
    before, after = (manifest(store, version) for version in (1, 2))
    assert [one.name for one in after.artifacts if one not in before.artifacts] == [SBOM]
    assert build(with_bill(store, corpus, sbom=False)).version == 3
    assert manifest(store, 3) == manifest(folder / "plain")


@pytest.mark.parametrize("data", [b"{", b"[]", b'{"bomFormat": "other"}', b"\xff", b"[" * 100_000])
def test_what_is_no_bill_is_damage(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(data)
    with pytest.raises(CorruptBlob, match=r"sbom\.cdx\.json"):
        read_sbom(tmp_path / "file")
