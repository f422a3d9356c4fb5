"""A plan against the build that follows it: documents, parts and vectors, whatever changed."""

from __future__ import annotations

import copy
import dataclasses
import shutil
import signal
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import settings as hypothesis
from hypothesis import strategies as st

from flows.build_run import BuildOutcome, build_inline
from flows.plan import make_plan
from indexmill.errors import BudgetReached, ConfigurationError, GateRefused
from indexmill.models.embedder import HashEmbedder
from indexmill.store.reader import StoreReader
from schemas.config import Configuration, Price
from storage import runs
from storage.folder import open_folder
from tasks.core.estimate import Forecast
from tasks.core.report import Silent
from tasks.families.bm25 import postings as bm25
from tasks.families.zoom_graph import compare
from tasks.pipeline.plan.causes import Cause
from tasks.pipeline.plan.changes import DocumentChanges
from tasks.pipeline.plan.judged import ModelUse
from tasks.pipeline.plan.plan import Approved, Plan, cost_of
from tests.corpora import documents, write_corpus
from tests.deep import WHOLE
from tests.flows.children import Forks, build, settings
from tests.storage.quick import quick_folder

Rows = dict[str, tuple[str, str]]


def eight(folder: Path) -> dict[str, Any]:
    """The settings of a build of eight documents."""
    return settings(folder / "store", write_corpus(folder / "corpus.jsonl", documents(8, words=110)))


def plan(chosen: dict[str, Any], *, cold: bool = False) -> Plan:
    """In this process: others take seconds to start."""
    return make_plan(Configuration.model_validate({"run": {"workers": 1}, **chosen}), progress=Silent(), cold=cold)


def planned_and_built(chosen: dict[str, Any], *, cold: bool = False) -> tuple[Plan, BuildOutcome]:
    """A plan that came true to the last vector, and the build that followed it."""
    store = Path(chosen["store"])
    expected = plan(chosen, cold=cold)
    outcome = build(chosen, cold=cold)
    parts = expected.parts
    assert parts.certain <= outcome.parts_made <= parts.made
    assert outcome.parts_made + outcome.parts_reused == parts.made + parts.reused
    assert (expected.parts.vectors_made, expected.parts.vectors_reused) == (
        outcome.vectors_made,
        outcome.vectors_reused,
    )
    assert expected.publishes == outcome.published
    assert sum(expected.parts.causes.values()) == expected.parts.made
    (run,) = [run for run in runs.list_runs(open_folder(store)) if run.run_id == outcome.run]
    assert run.end is not None
    for name, stage in expected.stages.items():
        told = run.end.report["stages"][name]
        assert isinstance(told, dict)
        assert stage.certain <= int(str(told["parts_made"])) <= stage.made, name
        assert stage.vectors_made == told.get("vectors_made", 0), name
    reader = StoreReader(store)
    manifest = reader.manifest(reader.newest().manifest)
    assert expected.corpus.documents == outcome.documents
    assert expected.corpus.fingerprint == manifest.corpus.fingerprint
    return expected, outcome


_Edit = tuple[str, int, int]

EDITS = st.lists(
    st.tuples(
        st.sampled_from(("add", "edit", "delete", "rename", "retitle", "copy")), st.integers(0, 99), st.integers(0, 9)
    ),
    max_size=5,
)
CHANGES: list[dict[str, Any]] = [
    {},
    {},
    {"split": {"tokens": 64}},
    {"split": {"overlap": 20}},
    {"split": {"language": "de"}},
    {"embed": {"sentences": "separate"}},
    {"shards": {"document_tokens": 1_000_000}},
    {"shards": {"entities": 1_000_000}},
    {"families": {"bm25": {"title_weight": 5}}},
    {"families": {"tri_graph": {"enabled": False}}},
    {"families": {"zoom_graph": {"entity_links": True}}},
    {"families": {"zoom_graph": {"threshold": 1.0}}},
    {"families": {"fused": {"parameters": {"pool": 77}}}},
    {"families": {"lsh_tree": {"enabled": False}}},
    {"families": {"lsh_tree": {"summary_tokens": 50}}},
    {"families": {"lsh_tree": {"seed": 1}}},
]


def apply(rows: Rows, edits: list[_Edit]) -> tuple[Rows, DocumentChanges]:
    """The rows after some edits, and how they differ."""
    now = dict(rows)
    for number, (kind, which, salt) in enumerate(edits):
        names = sorted(now)
        name = names[which % len(names)]
        title, text = now[name]
        if kind == "add":
            now[f"new-{number}-{which}"] = documents(1, seed=1000 + which)["doc-0000"]
        elif kind == "edit":
            now[name] = (title, text.replace("bridge of", f"tower {salt} near", 1))
        elif kind == "retitle":
            now[name] = (f"{title} {salt}", text)
        elif kind == "rename":
            now[f"renamed-{number}-{which}"] = now.pop(name)
        elif kind == "copy":
            now[f"copy-{number}-{which}"] = now[name]
        elif len(now) > 2:
            del now[name]
    return now, differing(rows, now)


def differing(was: Rows, now: Rows) -> DocumentChanges:
    """The plain definition: an id that is new takes the content of one that is gone, if there is one."""
    gone = [was[name] for name in was if name not in now]
    added = moved = 0
    for name in now:
        if name not in was:
            if now[name] in gone:
                gone.remove(now[name])
                moved += 1
            else:
                added += 1
    both = was.keys() & now.keys()
    edited = sum(was[name] != now[name] for name in both)
    return DocumentChanges(added, edited, len(gone), moved, len(both) - edited)


def held_to_the_build(edits: list[_Edit], change: dict[str, Any], more: list[_Edit]) -> None:
    rows = documents(7, words=90)
    with quick_folder() as folder:
        corpus = write_corpus(folder / "corpus.jsonl", rows)
        build(settings(folder / "store", corpus))
        for round_edits, changes in ((edits, {}), (more, change)):
            rows, expected = apply(rows, round_edits)
            write_corpus(corpus, rows)
            found, _ = planned_and_built(settings(folder / "store", corpus, **copy.deepcopy(changes)))
            assert found.documents == expected
            # Reused should the vectors come out the same.
            doubted = [found.stages[name] for name in ("zoom_links", "passage_codes")]
            sure = found.parts.made - sum(one.made - one.certain for one in doubted)
            assert changes or found.parts.certain == sure


@pytest.mark.slow
@hypothesis(max_examples=8, derandomize=True)
@given(EDITS, st.sampled_from(CHANGES), EDITS)
def test_a_plan_says_what_the_build_then_does(edits: list[_Edit], change: dict[str, Any], more: list[_Edit]) -> None:
    held_to_the_build(edits, change, more)


@pytest.mark.slow
@hypothesis(max_examples=150 if WHOLE else 30)
@given(EDITS, st.sampled_from(CHANGES), EDITS)
def test_many_plans_say_what_the_build_then_does(edits: list[_Edit], change: dict[str, Any], more: list[_Edit]) -> None:
    held_to_the_build(edits, change, more)


@pytest.mark.slow
def test_a_first_plan_is_of_a_store_that_is_not_there(quick: Path) -> None:
    chosen = eight(quick)
    found, outcome = planned_and_built(chosen)
    assert found.parent is None
    assert found.documents == DocumentChanges(added=8)
    assert found.parts.causes == {"first": outcome.parts_made}
    assert found.seconds is None
    again, _ = planned_and_built(chosen)
    assert (again.publishes, again.parts.made, again.parts.vectors_made) == (False, 0, 0)
    assert again.documents == DocumentChanges(unchanged=8)
    assert again.seconds is not None


def test_a_cold_plan_makes_everything(quick: Path) -> None:
    chosen = eight(quick)
    first = build(chosen)
    found, _ = planned_and_built(chosen, cold=True)
    assert found.parts.causes == {"cold": first.parts_made}
    assert found.parts.vectors_made == first.vectors_made


@pytest.mark.parametrize("share", [0.3, 0.8])
def test_a_plan_after_a_killed_run_reuses_what_it_made(quick: Path, forks: Forks, share: float) -> None:
    rows = documents(8, words=110)
    corpus = write_corpus(quick / "corpus.jsonl", rows)
    chosen = settings(quick / "store", corpus)
    build(chosen)
    title, text = rows["doc-0003"]
    rows["doc-0003"] = (title, text.replace("bridge of", "lighthouse of Saint Corvin near", 1))
    rows["doc-0099"] = documents(1, seed=9)["doc-0000"]
    write_corpus(corpus, rows)
    shutil.copytree(quick / "store", quick / "other")
    undisturbed = forks.build(settings(quick / "other", corpus))
    assert undisturbed.outcome is not None
    killed = forks.build(chosen, at=int(share * len(undisturbed.crossed)))
    assert killed.code == -signal.SIGKILL
    found, outcome = planned_and_built(chosen)
    assert found.documents == DocumentChanges(added=1, changed=1, unchanged=7)
    assert outcome.parts_made < undisturbed.outcome.parts_made


@pytest.mark.slow
def test_a_killed_first_run_is_gone_on_with(quick: Path, forks: Forks) -> None:
    chosen = eight(quick)
    assert forks.build(chosen, at=150).code == -signal.SIGKILL
    found, outcome = planned_and_built(chosen)
    assert found.parts.reused == outcome.parts_reused > 0
    assert set(found.parts.causes) == {"first"}


def test_a_lost_part_is_made_again_and_what_follows_is_kept(quick: Path) -> None:
    chosen = eight(quick)
    build(chosen)
    for stage in ("embed", "zoom_links", "resolve"):
        for receipt in (quick / "store" / "work" / stage).iterdir():
            receipt.unlink()
    found, outcome = planned_and_built(chosen)
    assert found.parts.causes == {"lost": found.parts.made}
    assert outcome.published is False
    assert found.stages["mention_links"].made == found.stages["document_vectors"].made == 0


def causes(found: Plan) -> dict[str, set[Cause]]:
    return {name: set(stage.causes) for name, stage in found.stages.items() if stage.causes}


def test_each_part_has_the_cause_that_made_it_necessary(quick: Path) -> None:
    rows = documents(12, words=110)
    corpus = write_corpus(quick / "corpus.jsonl", rows)
    build(settings(quick / "store", corpus))

    cut = plan(settings(quick / "store", corpus, split={"tokens": 64}))
    assert causes(cut)["embed"] == causes(cut)["mention_links"] == causes(cut)["check"] == {"settings"}
    assert "ingest" not in causes(cut)
    assert [str(change) for change in cut.changes] == ["split.tokens (256, now 64)"]

    off = plan(settings(quick / "store", corpus, families={"zoom_graph": {"enabled": False}}))
    assert causes(off) == {"check": {"settings"}}

    title, text = rows["doc-0003"]
    write_corpus(corpus, {**rows, "doc-0003": (title, f"{text} Falk left.")})
    edited = plan(settings(quick / "store", corpus))
    assert set().union(*causes(edited).values()) == {"corpus"}
    both = plan(settings(quick / "store", corpus, families={"bm25": {"title_weight": 7}}))
    assert causes(both)["bm25"] == {"settings"}
    assert causes(both)["mention_links"] == causes(both)["embed"] == {"corpus"}

    one_less = {name: row for name, row in rows.items() if name != "doc-0003"}
    write_corpus(corpus, one_less)
    shrunk = plan(settings(quick / "store", corpus))
    assert set().union(*causes(shrunk).values()) == {"corpus"}
    assert shrunk.documents == DocumentChanges(removed=1, unchanged=11)


@pytest.mark.slow
def test_another_model_makes_all_vectors(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = eight(quick)
    first = build(chosen)
    other = dataclasses.replace(HashEmbedder().fingerprint, weights="other", tokenizer="")
    monkeypatch.setattr(HashEmbedder, "fingerprint", property(lambda _: other))
    found, outcome = planned_and_built(chosen)
    assert found.parts.vectors_made == first.vectors_made
    assert causes(found)["embed"] == causes(found)["embed_names"] == causes(found)["zoom_links"] == {"model"}
    assert not {"split", "bm25", "mention_links"} & causes(found).keys()
    assert [change.name for change in found.changes] == ["models.encoder.weights"]
    assert found.parts.certain == outcome.parts_made  # it makes the same bits, which nobody could know


@pytest.mark.slow
def test_ranges_of_rows_are_planned_where_there_are_no_links_to_start_from(
    quick: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compare, "PACKS_PER_RANGE", 0)  # 64 ranges
    rows = documents(30, words=40)
    chosen = settings(quick / "store", write_corpus(quick / "corpus.jsonl", rows))
    first = plan(chosen)
    assert (first.stages["compare_rows"].made, causes(first)["compare_rows"]) == (64, {"first"})
    build_inline(Configuration.model_validate(chosen), progress=Silent())
    rows["doc-0003"] = (rows["doc-0003"][0], "Another text of some words.")
    write_corpus(quick / "corpus.jsonl", rows)
    night = plan(chosen)
    assert (night.stages["compare_rows"].made, night.stages["compare_rows"].certain) == (64, 0)  # if many rows changed
    assert causes(night)["zoom_links"] == {"corpus"}
    other = copy.deepcopy(chosen)
    other.setdefault("families", {}).setdefault("zoom_graph", {})["cap"] = 3
    again = plan(other)
    assert again.stages["compare_rows"].made == 64
    assert "settings" in causes(again)["compare_rows"] | causes(again)["zoom_links"]


def test_another_version_of_a_stage_is_the_cause_of_what_it_makes(quick: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    chosen = eight(quick)
    build(chosen)
    monkeypatch.setattr(bm25, "STAGE", dataclasses.replace(bm25.STAGE, version=99))
    found, outcome = planned_and_built(chosen)
    assert causes(found) == {"bm25": {"code"}, "check": {"code"}}
    # The new version makes the same bytes, so that the checks are found: nobody could know.
    assert (found.parts.made, found.parts.certain, outcome.parts_made) == (5, 2, 2)


@pytest.mark.slow
def test_the_record_of_a_run_keeps_what_was_planned(quick: Path) -> None:
    chosen = eight(quick)
    configuration = Configuration.model_validate(chosen)
    found = make_plan(configuration, progress=Silent())
    outcome = build_inline(configuration, progress=Silent(), approved=Approved(found))
    end = runs.read_run(open_folder(quick / "store"), outcome.run).end
    assert end is not None
    assert end.plan is not None
    assert end.plan["parts_made"] == {"planned": outcome.parts_made, "actual": outcome.parts_made}
    assert end.plan["vectors_made"] == {"planned": outcome.vectors_made, "actual": outcome.vectors_made}


def test_a_build_refuses_a_plan_that_no_longer_holds(quick: Path) -> None:
    rows = documents(8, words=110)
    corpus = write_corpus(quick / "corpus.jsonl", rows)
    chosen = settings(quick / "store", corpus)

    def held(old: Plan, settings_: dict[str, Any]) -> BuildOutcome:
        return build_inline(Configuration.model_validate(settings_), progress=Silent(), approved=Approved(old))

    old = Plan.from_bytes(plan(chosen).to_bytes(), "the plan")  # as from a file
    with pytest.raises(GateRefused, match=r"settings differ: split\.tokens \(256, now 64\)"):
        held(old, settings(quick / "store", corpus, split={"tokens": 64}))
    write_corpus(corpus, {**rows, "new": documents(1, seed=5)["doc-0000"]})
    with pytest.raises(GateRefused, match="the corpus has 9 documents where the plan has 8, and 1 of 2 shards differ"):
        held(old, chosen)
    store = open_folder(quick / "store")
    assert not store.list("work/")  # nothing was made
    assert [run.state for run in runs.list_runs(store)] == ["refused", "refused"]
    write_corpus(corpus, rows)
    assert held(old, chosen).version == 1
    with pytest.raises(GateRefused, match="made for no version, but the index is at version 1"):
        held(old, chosen)


@pytest.mark.slow
def test_bytes_are_judged_from_the_version_before(quick: Path) -> None:
    rows = documents(30, words=110)
    corpus = write_corpus(quick / "corpus.jsonl", rows)
    chosen = settings(quick / "store", corpus)
    assert plan(chosen).bytes is None
    build(chosen)
    idle, cold = plan(chosen).bytes, plan(chosen, cold=True).bytes
    for one in (idle, cold):  # a cold build writes the same blobs again
        assert one is not None
        assert (one.snapshot.high, one.work.high) == (0, 0)
    blobs = {path.name for path in (quick / "store" / "blobs").rglob("*")}
    write_corpus(corpus, {**rows, **{f"new-{name}": row for name, row in documents(30, words=110, seed=5).items()}})
    doubled = plan(chosen).bytes
    build(chosen)
    reader = StoreReader(quick / "store")
    artifacts = reader.manifest(reader.newest().manifest).artifacts
    new = sum(artifact.bytes for artifact in artifacts if artifact.digest not in blobs)
    assert doubled is not None
    assert doubled.unjudged == ()
    assert doubled.snapshot.low <= doubled.snapshot.high
    assert new / 1.5 < doubled.snapshot.high < 1.5 * new
    more = plan(
        {**chosen, "families": {"zoom_graph": {"entity_links": True}, "community_tree": {"enabled": True}}}
    ).bytes
    assert more is not None
    assert {"describe", "community_tree"} <= set(more.unjudged)


@pytest.mark.slow
def test_settings_that_shape_nothing_are_no_drift(quick: Path) -> None:
    corpus = write_corpus(quick / "corpus.jsonl", documents(4))
    chosen = settings(quick / "store", corpus)
    old = plan(chosen)
    changed = settings(
        quick / "store", corpus, run={"workers": 7}, prices={"m": {"input_per_million": 1, "output_per_million": 1}}
    )
    assert build_inline(Configuration.model_validate(changed), progress=Silent(), approved=Approved(old)).published


# Money


USE = ModelUse(
    Forecast(2, 5, 3), Forecast(1_000_000, 2_000_000, 1_200_000), Forecast(0, 500_000, 100_000), likely=None, answers=0
)


@pytest.mark.slow
def test_tokens_cost_what_the_table_says() -> None:
    prices = {"writer": Price(input_per_million=0.5, output_per_million=2.0, currency="EUR")}
    cost = cost_of([("writer", USE)], prices)
    assert (cost.currency, cost.low, cost.high, cost.expected, cost.unpriced) == ("EUR", 0.5, 2.0, 0.8, ())
    assert cost.models["writer"]["calls"] == {"low": 2, "high": 5, "expected": 3}  # type: ignore[index, call-overload]
    assert cost_of([("writer", USE)], {}).unpriced == ("writer",)
    both = cost_of([("writer", USE), ("writer", USE)], prices)  # an encoder of the same name
    assert (both.high, len(both.models)) == (4.0, 2)
    assert cost_of([], prices).high == 0.0


@pytest.mark.slow
def test_prices_in_two_currencies_are_refused() -> None:
    price = {"input_per_million": 1, "output_per_million": 1}
    with pytest.raises(ValueError, match="EUR and USD"):
        Configuration.model_validate({"prices": {"a": price, "b": {**price, "currency": "EUR"}}})


@pytest.mark.slow
def test_a_plan_above_the_most_that_it_may_cost_is_refused(quick: Path) -> None:
    corpus = write_corpus(quick / "corpus.jsonl", documents(4))
    chosen = Configuration.model_validate(settings(quick / "store", corpus))
    free = make_plan(chosen, progress=Silent())
    Approved(free, 0.0).check_cost()
    prices = {"writer": Price(input_per_million=0.5, output_per_million=2.0)}
    dear = free.model_copy(update={"cost": cost_of([("writer", USE)], prices)})
    Approved(dear, 2.0).check_cost()
    with pytest.raises(
        BudgetReached, match=r"may cost 2\.00 USD .about 0\.80 is expected., more than the maximum of 1\.99"
    ):
        build_inline(chosen, progress=Silent(), approved=Approved(dear, 1.99))
    assert [run.state for run in runs.list_runs(open_folder(quick / "store"))] == ["budget"]
    with pytest.raises(ConfigurationError, match="prices:"):
        Approved(free.model_copy(update={"cost": cost_of([("writer", USE)], {})}), 100.0).check_cost()
