"""A new version of a stage makes its parts again; what depends on unchanged rows alone is copied."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import pytest

import indexmill
from tasks.stages.split import split
from tests.corpora import documents
from tests.flows.asking import ask
from tests.flows.children import NO_FAMILIES, build
from tests.llm_server import LlmServer

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
        return {artifact.name: artifact.digest for artifact in snapshot.manifest.artifacts}


@pytest.mark.slow
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
