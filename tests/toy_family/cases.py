"""Tests of a family that is only declared. `tests/test_toy_family.py` runs them inside the copy with the family."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from tasks.families.incipits.family import FAMILY

import indexmill
from flows.build_run import BuildOutcome, run_build
from indexmill.command import main
from indexmill.diff import compare
from schemas.config import Configuration
from storage.folder import open_folder
from tasks.core.checks import CheckError
from tasks.core.executor import InlineExecutor
from tasks.core.stage import Job, NoSettings, Part
from tasks.pipeline.build import Build
from tasks.stages.check.check import STAGE as CHECK
from tests.corpora import Documents, documents, write_corpus
from tests.flows.forgetting import places_of
from tests.storage.quick import quick_folder
from tests.toy_family import NAME

CANARY = "zyxquorra"  # begins one document
EDITED = "doc-0002"
FIRST = "The bridge keeper remembers. "


class Index:
    """An index of a few documents with the family, and commands on it."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.folder, self._capsys = folder, capsys
        self.store, self.configuration = folder / "store", folder / "indexmill.yaml"
        self.rows: Documents = documents(12, words=110)
        title, text = self.rows["doc-0004"]
        self.rows["doc-0004"] = (title, f"{CANARY.capitalize()} slept here. {text}")
        settings = {
            "store": str(self.store),
            "corpus": {"paths": [str(folder / "corpus.jsonl")]},
            "embed": {"model": "hash"},
            "shards": {"document_tokens": 1000},
            "gates": {"max_shrink": 1.0},
            "families": {NAME: {"words": 6, "parameters": {"rarity": 0.5}}, "lsh_tree": {"enabled": False}},
        }
        self.configuration.write_text(yaml.safe_dump(settings), encoding="utf-8")

    def write(self) -> None:
        write_corpus(self.folder / "corpus.jsonl", self.rows)

    def run(self, command: str, *arguments: object) -> str:
        self._capsys.readouterr()
        code = main([command, *map(str, arguments)])
        out, err = self._capsys.readouterr()
        assert code == 0, err
        return out

    def json(self, command: str, *arguments: object) -> Any:
        return json.loads(self.run(command, *arguments, "--config", self.configuration, "--json"))


@pytest.fixture
def inline(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let builds run without a server and workers."""

    def build(configuration: Configuration, **options: Any) -> BuildOutcome:
        return run_build(configuration, InlineExecutor(), Build.run, **options)

    monkeypatch.setattr("flows.local.build_under_prefect", build)


@pytest.fixture
def index(capsys: pytest.CaptureFixture[str], inline: None) -> Iterator[Index]:
    """An index with version 1."""
    with quick_folder() as folder:
        new_index = Index(folder, capsys)
        new_index.write()
        assert new_index.json("build")["version"] == 1
        yield new_index


def edit(index: Index) -> None:
    title, text = index.rows[EDITED]
    index.rows[EDITED] = (title, FIRST + text)
    index.write()


def test_it_is_planned_built_refreshed_checked_and_compared(index: Index) -> None:
    with indexmill.open(index.store) as snapshot:
        assert NAME in snapshot.methods
        assert set(snapshot.manifest.families[NAME].counts) == {"words", "occurrences"}
        assert snapshot.manifest.families[NAME].parameters == {"rarity": 0.5}
        assert len(snapshot.table("incipit_texts")) == len(snapshot.table("passages"))
    edit(index)
    planned = index.json("plan")
    built = index.json("build")
    assert planned["parts"]["made"] == built["parts_made"]
    assert planned["parts"]["reused"] == built["parts_reused"]
    assert index.json("build")["version"] == 2  # nothing to do
    index.run("verify", "--config", index.configuration)
    with indexmill.open(index.store, version=1) as old, indexmill.open(index.store) as new:
        added, removed = compare(old, new).rows["incipit_texts"]
        assert min(added, removed) > 0
        assert any(text.startswith("The bridge keeper") for text in new.table("incipit_texts")["incipit"].to_pylist())
    assert index.json("diff", "1", "2")["incipit_texts"]["added"] == added


def test_its_refresh_is_what_a_build_from_nothing_makes(index: Index) -> None:
    edit(index)
    refreshed = index.json("build")["manifest"]
    assert index.json("build", "--store", index.folder / "fresh")["manifest"] == refreshed


def test_its_checks_refuse(index: Index) -> None:
    store = open_folder(index.store)
    job = Job("", "", "p", store.url, "run", {"incipits": _blob(index, "incipit_texts")}, NoSettings())
    shard, _ = FAMILY.checks
    stage = dataclasses.replace(CHECK, inputs=shard.inputs)
    with pytest.raises(CheckError, match="rows for 9 passages"):
        shard.check(Part(store, job, stage), {"passages": 9})


def _blob(index: Index, artifact: str) -> str:
    with indexmill.open(index.store) as snapshot:
        return snapshot.shards(artifact)[0].digest


def test_it_is_shown_and_retrieved_from(index: Index) -> None:
    edit(index)
    index.json("build")
    assert index.json("show")["families"][NAME]["counts"]["words"] > 0
    assert ["The", 1] in index.json("show", "--incipits")["incipits"]
    query = ("query", "Who is the bridge keeper?", "--method", NAME, "-k", "3")
    (first, *_) = index.json(*query)["hits"]
    assert first["document_ids"] == [EDITED]
    fused = index.json("query", "Who is the bridge keeper?", "--explain")["hits"]
    methods = [method["name"] for hit in fused for method in hit["explanation"]["methods"]]
    assert NAME in methods
    rare = index.json(*query, "--rarity", "0")["hits"][0]["score"]
    assert rare != first["score"]


def test_it_is_exported_and_forgotten_from(index: Index) -> None:
    index.run("export", "--config", index.configuration, index.folder / "exported")
    with indexmill.open(index.folder / "exported") as snapshot:
        assert snapshot.retrieve(CANARY, method=NAME, k=1)[0].document_ids == ("doc-0004",)
    index.run("export", "--config", index.configuration, "--graphml", index.folder / "graph")
    assert CANARY in (index.folder / "graph" / f"{NAME}.graphml").read_text(encoding="utf-8").lower()
    assert any(NAME in name or "blobs" in name for name in places_of(index.store, CANARY))
    index.rows.pop("doc-0004")
    index.write()
    index.run("forget", "--config", index.configuration, "--yes", "doc-0004")
    assert places_of(index.store, CANARY) == {}
    with indexmill.open(index.store) as snapshot:
        assert snapshot.retrieve(CANARY, method=NAME, k=1) == []
