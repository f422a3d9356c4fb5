"""A build with rights: what it refuses, what it publishes, and what changes when the rights do."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.build_run import Order, backfill_inline, build_inline
from flows.plan import make_plan
from indexmill.errors import BadInput, GateRefused
from indexmill.store.layout import blob_path
from indexmill.store.reader import StoreReader
from schemas.config import Configuration
from storage import runs
from storage.folder import open_folder
from tasks.core.report import Silent
from tasks.pipeline.backfill import Waves
from tests.indexmill.running import Run
from tests.tasks.indexes import only

STRICT, LAX = ({"field": "groups", "required": required} for required in (True, False))
OTHER = {"field": "title_groups", "required": True}

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
        return {hit.document_ids[0] for hit in snapshot.retrieve("bridge", method="bm25", k=9, principals=principals)}


@pytest.mark.slow
def test_rights_are_published_refused_where_they_are_unclear_and_changed(quick: Path) -> None:
    store = quick / "store"
    assert build_inline(configuration(quick, STRICT), progress=Silent()).published
    refused = runs.quarantine_of(open_folder(store))[1].to_pylist()
    assert {(row["document_id"], row["reason"]) for row in refused} == {("c", "bad-access"), ("d", "bad-access")}
    assert (found(store, None), found(store, ["staff"])) == (set(), {"a"})
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.minimum_reader_version == 5
    # A night without a change makes nothing, and its plan knows.
    plan = make_plan(configuration(quick, STRICT), progress=Silent())
    assert (plan.publishes, plan.parts.made) == (False, 0)
    assert not build_inline(configuration(quick, STRICT), progress=Silent()).published
    # Other rights are another version.
    plan = make_plan(configuration(quick, LAX), progress=Silent(), allow_rights_change=True)
    assert plan.publishes
    assert build_inline(configuration(quick, LAX), progress=Silent(), allow_rights_change=True).published
    assert (found(store, None), found(store, ["staff"])) == ({"c"}, {"a", "c"})
    assert build_inline(configuration(quick, None), progress=Silent(), allow_rights_change=True).published
    assert found(store, None) == {"a", "b", "c", "d"}
    with indexmill.open(store) as snapshot:
        assert snapshot.manifest.minimum_reader_version == 5
        assert "corpus" not in snapshot.manifest.configuration
    with pytest.raises(BadInput, match="bad-access"):
        build_inline(configuration(quick, STRICT, strict=True), progress=Silent())


@pytest.mark.parametrize(
    ("before", "now", "said"),
    [
        (STRICT, None, "the configuration has no corpus.access: everyone could read every document"),
        (LAX, None, "the configuration has no corpus.access"),
        (STRICT, LAX, "corpus.access.required is false: everyone could read documents without it"),
        (STRICT, OTHER, "corpus.access.field is 'title_groups': others could read"),
    ],
)
def test_rights_that_would_let_others_read_are_refused_before_anything_is_made(
    quick: Path, before: dict[str, Any], now: dict[str, Any] | None, said: str
) -> None:
    store = quick / "store"
    build_inline(configuration(quick, before), progress=Silent())
    slip = configuration(quick, now)

    def backfilled() -> object:
        return backfill_inline(slip, Waves(), progress=Silent())

    def started() -> object:
        with Order(slip, Silent()).open() as run:
            return run

    for act in (
        backfilled,
        started,
        lambda: build_inline(slip, progress=Silent()),
        lambda: make_plan(slip, progress=Silent()),
        lambda: build_inline(slip, progress=Silent(), allow_shrink=True),
    ):
        with pytest.raises(GateRefused, match="build with --allow-rights-change") as refused:
            act()
        assert "version 1 controls access by the field 'groups'" in str(refused.value)
        assert said in str(refused.value)
    last = runs.list_runs(open_folder(store))[-1]
    assert (last.state, last.exit_code) == ("refused", 3)
    assert last.end is not None
    assert "ingest" not in last.end.report["stages"]
    assert StoreReader(store).versions() == [1]


@pytest.mark.slow
@pytest.mark.parametrize(("before", "now"), [(None, LAX), (None, STRICT), (LAX, STRICT), (STRICT, STRICT)])
def test_rights_that_let_nobody_else_read_are_published_unasked(
    quick: Path, before: dict[str, Any] | None, now: dict[str, Any]
) -> None:
    build_inline(configuration(quick, before), progress=Silent())
    build_inline(configuration(quick, now), progress=Silent())
    with indexmill.open(quick / "store") as snapshot:
        assert snapshot.access is not None
        assert snapshot.access.required == now["required"]


@pytest.mark.slow
def test_damage_does_not_hide_that_there_were_rights(quick: Path) -> None:
    store = quick / "store"
    build_inline(configuration(quick, LAX), progress=Silent())
    build_inline(configuration(quick, STRICT), progress=Silent())
    (store / blob_path(StoreReader(store).ref(2).manifest)).write_bytes(b"{}")
    with pytest.raises(GateRefused, match="version 2 controls access by the field 'groups'"):
        build_inline(configuration(quick, None), progress=Silent())
    assert build_inline(configuration(quick, STRICT), progress=Silent()).version == 2


@pytest.mark.slow
def test_the_commands_can_be_told_that_other_rights_are_meant(quick: Path, run: Run) -> None:
    build_inline(configuration(quick, STRICT), progress=Silent())
    arguments = ("--store", quick / "store", "--corpus", quick / "corpus.jsonl", "--workers", 1)
    assert run("plan", *arguments) == 3
    assert "fix corpus.access, or, if this is intended, build with --allow-rights-change" in run.err
    assert run("plan", *arguments, "--allow-rights-change") == 0
