"""Stores that earlier code wrote: a refresh pays for nothing again, and what they hold is found to be forgotten."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import indexmill
from indexmill.retrieve.shared_schema import NAMES
from storage import tombstones
from storage.folder import open_folder
from tasks.stages.embed import names
from tasks.stages.embed.embed import embed_texts
from tasks.stages.split import split
from tests.corpora import documents, write_corpus
from tests.flows.asking import ask
from tests.flows.children import NO_FAMILIES, build, settings
from tests.flows.forgetting import forget_here, passages_of
from tests.llm_server import LlmServer
from tests.old_formats import extracted

ROWS = {
    f"{name}.md": (title, f"# {title}\n\n## Bridges\n\n{text}\n\n## Years\n\n{text[::-1]}")
    for name, (title, text) in documents(3, words=60).items()
}
SETTINGS: dict[str, Any] = {
    "families": {**NO_FAMILIES, "lsh_tree": {"smallest": 2, "largest": 4}},
    "extract": {"enabled": True},
    "recognise": {"recogniser": "llm"},
    "split": {"tokens": 60},
}


def digests(store: Path, version: int) -> dict[str, str]:
    with indexmill.open(store, version=version) as snapshot:
        return {one.name: one.digest for one in snapshot.manifest.artifacts}


@pytest.mark.usefixtures("api_key")
def test_passages_that_gain_sections_are_neither_embedded_nor_asked_about_again(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = quick / "store"
    with LlmServer() as server:
        plain = ask(store, ROWS, server, **SETTINGS)
        with monkeypatch.context() as earlier:
            earlier.setattr(split, "STAGE", dataclasses.replace(split.STAGE, version=split.STAGE.version - 1))
            earlier.setattr(split, "sections", lambda _, __, starts: [""] * len(starts))
            first = build(plain)
        bill = server.billed.calls
        assert first.vectors_made > 0
        assert first.llm_calls == bill > 0
        second = build(plain)
        assert (second.published, second.vectors_made, second.llm_calls) == (True, 0, 0)
        assert server.billed.calls == bill
    before, after = digests(store, 1), digests(store, 2)
    changed = {name.partition("/")[0] for name in before if before[name] != after[name]}
    assert (before.keys(), changed) == (after.keys(), {"passages"})
    with indexmill.open(store) as snapshot:
        sections = set(snapshot.table("passages")["section"].to_pylist())
    assert {"Bridges", "Years"} <= sections


def test_vectors_of_names_become_the_directions_of_a_rebuild_without_an_encoder(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    corpus = write_corpus(quick / "corpus.jsonl", documents(12, words=80))
    families = {**NO_FAMILIES, "zoom_graph": {"enabled": True, "entity_links": True}}
    kept = settings(quick / "kept", corpus, families=families)
    with monkeypatch.context() as earlier:
        array = dataclasses.replace(NAMES.arrays["vectors"], dtype="float32")
        schema = dataclasses.replace(NAMES, arrays={**NAMES.arrays, "vectors": array})
        output = dataclasses.replace(names.STAGE.outputs[0], schema=schema)
        stage = dataclasses.replace(names.STAGE, version=1, rows_version=0, outputs=(output,))
        earlier.setattr(names, "STAGE", stage)
        earlier.setattr(names, "directions_of", lambda vectors: vectors)
        earlier.setattr(names, "embed_texts", lambda *given: embed_texts(*given[:4]))
        assert build(kept).vectors_made > 0
    second = build(kept)
    assert (second.published, second.vectors_made) == (True, 0)
    with indexmill.open(quick / "kept", version=1) as before, indexmill.open(quick / "kept", version=2) as after:
        kinds = [{array.dtype.kind for array in one.vectors("names", "vectors")} for one in (before, after)]
    assert kinds == [{"f"}, {"i"}]
    build(settings(quick / "fresh", corpus, families=families))
    assert digests(quick / "kept", 2) == digests(quick / "fresh", 1)


def test_passages_of_a_kept_store_are_found_to_be_forgotten(quick: Path) -> None:
    """Its tables may lack columns of today's; what was made of a forgotten passage must not come back by an import."""
    store, _ = extracted(1, quick)
    passages = passages_of(store)["doc-0003"]
    corpus = write_corpus(quick / "corpus.jsonl", documents(12, words=80))
    forget_here(str(store), settings(store, corpus, families=NO_FAMILIES), "doc-0003")
    derived = {one for tombstone in tombstones.forgotten(open_folder(store)).tombstones for one in tombstone.derived}
    assert passages
    assert derived >= set(map(tombstones.document_digest, passages))
    with indexmill.open(store) as snapshot:
        assert (snapshot.version, snapshot.manifest.corpus.documents) == (2, 11)
        assert snapshot.retrieve("Who built the bridge of Vell?", method="dense")
