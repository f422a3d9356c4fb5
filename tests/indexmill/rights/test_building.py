"""A build with rights: what it refuses, what it publishes, and what changes when the rights do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.plan import make_plan
from flows.run import build_inline
from indexmill.errors import BadInput
from schemas.config import Configuration
from storage import runs
from storage.folder import open_folder
from tasks.core.report import Silent
from tests.tasks.indexes import only

ROWS = [
    {"id": "a", "title": "A", "text": "The bridge of A.", "groups": ["staff"]},
    {"id": "b", "title": "B", "text": "The bridge of B.", "groups": "legal"},
    {"id": "c", "title": "C", "text": "The bridge of C."},
    {"id": "d", "title": "D", "text": "The bridge of D.", "groups": []},
]


def configuration(folder: Path, access: dict[str, Any] | None, **run: Any) -> Configuration:
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(row) + "\n" for row in ROWS), encoding="utf-8")
    settings = {
        "store": folder / "store",
        "corpus": {"paths": [str(corpus)], "access": access},
        "embed": {"model": "hash"},
        "families": only("bm25"),
        "gates": {"max_shrink": 1.0},
        "run": {"workers": 1, **run},
    }
    return Configuration.model_validate(settings)


def found(store: Path, principals: Any) -> set[str]:
    with indexmill.open(store) as snapshot:
        return {hit.document_ids[0] for hit in snapshot.retrieve("bridge", "bm25", 9, principals=principals)}


def test_rights_are_published_refused_where_they_are_unclear_and_changed(quick: Path) -> None:
    store = quick / "store"
    strict, lax = ({"field": "groups", "required": required} for required in (True, False))
    assert build_inline(configuration(quick, strict), progress=Silent()).published
    refused = runs.quarantine_of(open_folder(store))[1].to_pylist()
    assert {(row["document_id"], row["reason"]) for row in refused} == {("c", "bad-access"), ("d", "bad-access")}
    assert (found(store, None), found(store, ["staff"])) == (set(), {"a"})
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.minimum_reader_version == 2
    # A night without a change makes nothing, and its plan knows.
    plan = make_plan(configuration(quick, strict), progress=Silent())
    assert (plan.publishes, plan.parts.made) == (False, 0)
    assert not build_inline(configuration(quick, strict), progress=Silent()).published
    # Other rights are another version.
    plan = make_plan(configuration(quick, lax), progress=Silent())
    assert plan.publishes
    assert build_inline(configuration(quick, lax), progress=Silent()).published
    assert (found(store, None), found(store, ["staff"])) == ({"c"}, {"a", "c"})
    assert build_inline(configuration(quick, None), progress=Silent()).published
    assert found(store, None) == {"a", "b", "c", "d"}
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.minimum_reader_version == 1
        assert "corpus" not in snapshot.manifest.configuration
    with pytest.raises(BadInput, match="bad-access"):
        build_inline(configuration(quick, strict, strict=True), progress=Silent())
