"""A dozen documents with all families, where every size that cuts work or data is tiny: many shards of several pieces.

What the index gives is what it gives at the usual sizes, whose results stand beside. Scores are equal but for rounding:
the links of a row are added up in the order of their blocks. Where no layout differs, all digests are equal.
"""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

import indexmill
from flows.build_run import BuildOutcome, backfill_inline
from flows.export import FORMS, export_snapshot
from flows.forget import forget
from indexmill.diff import diff
from indexmill.explore.neighbourhood import neighbourhood
from indexmill.hits import Hit
from indexmill.snapshot import Snapshot
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from schemas.config import Configuration
from tasks.core.report import Silent
from tasks.families.zoom_graph import compare
from tasks.pipeline.backfill import Waves
from tasks.pipeline.plan.plan import Plan
from tests.contracts.test_families import CASES
from tests.corpora import Documents, told_of
from tests.flows.children import collect
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index, edited, only, traces
from tests.tiny_sizes import make_tiny

ROWS = told_of(12)
NEW = "Zqnew met Quorra Vexnew at Kraitnew Hall. Fenna Rook built the bridge of Vell."
EDITED = {**edited(ROWS), "new": ("Fenna Rook", NEW)}

QUESTIONS = (
    "Who met Quorra Vexaaa?",
    "Who built the bridge of Vell in 1800?",
    "What is Kraitaab Hall?",
    "Fenna Rook and Ada Marl",
    "nothing that is known",
    "Where was Dario Penhale, and where Bruno of Vell?",
)
METHODS = ("fused", "tri_graph", "zoom_graph", "bm25", "dense", "lsh_tree", "community_tree", "heterograph")

FAMILIES: dict[str, Any] = {name: {"enabled": True, **case.settings} for name, case in CASES.items()}
FAMILIES["zoom_graph"]["entity_links"] = True
FAMILIES["lsh_tree"]["group"] = 4


class ManyShards(Index):
    """Shards smaller than settings allow, since a user has no use for them."""

    def configuration(self, rows: Documents, **changes: Any) -> Configuration:
        chosen = super().configuration(rows, **changes)
        shards = chosen.shards.model_copy(update={"document_tokens": 400, "entities": 8})
        return chosen.model_copy(update={"shards": shards})

    def beside(self, name: str = "fresh") -> ManyShards:
        return ManyShards(self.root.parent / name, self.at, **self.sections)


Ranked = Mapping[str, Any]


def rounded(value: Any) -> Any:
    """A value without the last digits of its floats."""
    if isinstance(value, dict):
        return {name: rounded(item) for name, item in value.items()}
    if isinstance(value, list | tuple):
        return [rounded(item) for item in value]
    return float(f"{value:.12g}") if isinstance(value, float) else value


def comparable(answers: list[list[Hit]]) -> Any:
    """Hits as they are at any sizes and in any version."""
    return rounded([[dataclasses.asdict(hit) | {"version": None} for hit in hits] for hits in answers])


def hits_of(snapshot: Snapshot, **options: Any) -> Ranked:
    """What each method finds about all questions, asked together."""
    return {
        method: comparable(snapshot.retrieve_batch(QUESTIONS, method=method, k=5, **options))
        for method in snapshot.methods
    }


def changes(index: Index) -> dict[str, Any]:
    """What a diff of the first two versions tells of the corpus, and not of the files of the index."""
    compared = diff(index.root, 1, 2).to_json()
    return {name: compared[name] for name in compared if name not in ("a", "b", "bytes", "cost", "settings", "equal")}


@dataclass
class Night:
    """A version at the usual sizes: its outcome, and what it gives. filtered: only documents but the last."""

    outcome: BuildOutcome
    hits: Ranked
    filtered: Ranked


@dataclass
class Both:
    """Two nights at the usual sizes, and the tiny index of the same nights."""

    tiny: ManyShards
    same_layout: BuildOutcome
    usual: list[Night] = field(default_factory=list)
    diff: dict[str, Any] = field(default_factory=dict)
    exports: dict[str, Any] = field(default_factory=dict)
    parts: list[Any] = field(default_factory=list)
    plans: list[Plan] = field(default_factory=list)
    outcomes: list[BuildOutcome] = field(default_factory=list)


SOME = {"document_id": {"!=": "doc-0000"}}


def exported(index: Index, form: str, folder: Path) -> dict[str, list[Any]]:
    """The rows or lines of the files of an export, in an order of their own, since blocks say that of the rows."""
    target = folder / form
    export_snapshot(index.store(), 1, target, form=form, progress=Silent())
    tables = {path.name: pq.read_table(path).to_pylist() for path in target.rglob("*.parquet")}
    graphs = {path.name: path.read_text("utf-8").splitlines() for path in target.rglob("*.graphml")}
    assert tables or graphs
    return {name: sorted(rows, key=repr) for name, rows in (tables | graphs).items()}


def shown(snapshot: Snapshot) -> list[Any]:
    """The neighbourhoods of the most connected entities, of one of them and of a question."""
    starts: list[dict[str, Any]] = [{}, {"entity": "Fenna Rook"}, {"question": QUESTIONS[0]}]
    return [neighbourhood(snapshot, **start) for start in starts]


@pytest.fixture(scope="module")
def both() -> Iterator[Both]:
    with quick_folder() as folder, pytest.MonkeyPatch.context() as patch:
        usual = ManyShards(folder / "usual" / "store", families=FAMILIES)
        for name in ("usual", "same layout", "tiny"):
            (folder / name).mkdir()
        with pytest.MonkeyPatch.context() as cuts:
            make_tiny(cuts, layout=False)
            same_layout = ManyShards(folder / "same layout" / "store", families=FAMILIES).build(ROWS)
        both = Both(ManyShards(folder / "tiny" / "store", families=FAMILIES), same_layout)
        for rows in (ROWS, EDITED):
            outcome = usual.build(rows)
            with usual.snapshot() as snapshot:
                both.usual.append(Night(outcome, hits_of(snapshot), hits_of(snapshot, where=SOME)))
                both.parts.append(shown(snapshot))
        both.diff = changes(usual)
        both.exports = {form: exported(usual, form, folder / "usual") for form in FORMS if form != "snapshot"}
        make_tiny(patch)
        for rows in (ROWS, EDITED):
            plan, outcome = both.tiny.planned(rows)
            both.plans.append(plan)
            both.outcomes.append(outcome)
        yield both


def test_a_dozen_documents_have_many_shards_and_several_pieces_of_each(both: Both) -> None:
    with both.tiny.snapshot() as snapshot:
        manifest = snapshot.manifest
        artifacts = Counter(artifact.name.partition("/")[0] for artifact in manifest.artifacts)
        files = [snapshot.file(artifact.name) for artifact in manifest.artifacts if artifact.kind == "table"]
        pieces = [artifact.name for artifact in manifest.artifacts if artifact.name.startswith("vectors/")]
    shards = both.tiny.labels("embed")
    assert len(shards) >= 4
    assert Counter(sum(name.startswith(f"vectors/{shard}") for name in pieces) > 1 for shard in shards)[True] >= 3
    assert artifacts["entities"] >= 8
    assert min(artifacts[name] for name in ("document_links", "entity_links", "summaries", "elements")) >= 2
    assert max(pq.read_metadata(file).num_row_groups for file in files) >= 8
    assert both.tiny.counts(both.outcomes[0], "compare_rows")["parts_made"] >= 4  # ranges of documents and of entities
    for stage in ("count_names", "resolve", "lsh_summaries", "community_reports", "elements"):
        assert len(both.tiny.labels(stage)) > 1, stage


@pytest.mark.parametrize("method", METHODS)
@pytest.mark.parametrize("night", [0, 1])
def test_every_method_finds_what_it_finds_at_the_usual_sizes(both: Both, method: str, night: int) -> None:
    usual = both.usual[night]
    assert set(usual.hits) == set(METHODS)
    assert any(usual.hits[method])
    with indexmill.open(both.tiny.root, version=night + 1) as snapshot:
        together = snapshot.retrieve_batch(QUESTIONS, method=method, k=5)
        assert comparable(together) == usual.hits[method]
        assert [snapshot.retrieve(question, method=method, k=5) for question in QUESTIONS] == together
        some = snapshot.retrieve_batch(QUESTIONS, method=method, k=5, where=SOME)
        assert comparable(some) == usual.filtered[method]


def test_what_does_not_shape_the_layout_gives_equal_digests(both: Both) -> None:
    assert both.same_layout.manifest == both.usual[0].outcome.manifest


def test_a_build_makes_what_its_plan_said(both: Both) -> None:
    """`Index.planned` has held the plans against the builds."""
    assert [plan.publishes for plan in both.plans] == [True, True]
    assert both.outcomes[1].vectors_reused > both.outcomes[1].vectors_made > 0
    nothing = both.tiny.plan(EDITED)
    assert (nothing.publishes, nothing.parts.made) == (False, 0)


@pytest.fixture(scope="module")
def compared_again() -> Iterator[tuple[Plan, dict[str, int]]]:
    """A night in which every document changes: its plan, and what a report counts of the ranges of rows."""
    rows = told_of(5)
    with quick_folder() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr(compare, "PACKS_PER_RANGE", 1)
        index = ManyShards(folder / "store", families=only("zoom_graph"))
        index.planned(rows)
        changed = {name: (title, f"{name} lit a lamp. {text}") for name, (title, text) in rows.items()}
        plan, outcome = index.planned(changed)
        yield plan, index.counts(outcome, "compare_rows")


def test_a_plan_counts_ranges_of_rows_that_may_be_compared_again(
    compared_again: tuple[Plan, dict[str, int]],
) -> None:
    """Whether so few rows change that links are refreshed is known once the rows are made."""
    plan, counts = compared_again
    assert counts["parts_made"] == plan.stages["compare_rows"].made > 1
    assert plan.stages["compare_rows"].certain == 0


def test_nothing_is_damaged(both: Both) -> None:
    assert verify(StoreReader(both.tiny.root)).problems == ()


def test_versions_differ_as_they_do_at_the_usual_sizes(both: Both) -> None:
    assert changes(both.tiny) == both.diff


def test_an_exported_folder_answers_as_the_store_does(both: Both, quick: Path) -> None:
    export_snapshot(both.tiny.store(), 2, quick / "exported", progress=Silent())
    with indexmill.open(quick / "exported") as snapshot:
        assert hits_of(snapshot) == both.usual[1].hits


@pytest.fixture(scope="module", params=[form for form in FORMS if form != "snapshot"])
def form(request: pytest.FixtureRequest, both: Both) -> Iterator[tuple[str, Any]]:
    """A form of an export, and the files of the tiny index in it."""
    with quick_folder() as folder:
        yield request.param, exported(both.tiny, request.param, folder)


def test_other_forms_of_an_export_hold_the_same(both: Both, form: tuple[str, Any]) -> None:
    name, files = form
    assert files == both.exports[name]


def test_neighbourhoods_are_those_of_the_usual_sizes(both: Both) -> None:
    with both.tiny.snapshot() as snapshot:
        assert shown(snapshot) == both.parts[1]


@pytest.mark.slow
def test_an_update_equals_a_rebuild_and_so_does_a_backfill(both: Both, quick: Path) -> None:
    """Some families go on from what the night before found, so a cold build equals the rebuild."""
    index = ManyShards(quick / "store", families=FAMILIES)
    waves = backfill_inline(index.configuration(ROWS), Waves(), progress=Silent())
    assert waves.manifest == both.outcomes[0].manifest
    index.build(EDITED)
    cold = index.build(EDITED, cold=True)
    assert cold.manifest == index.beside().build(EDITED).manifest


@pytest.mark.slow
def test_an_update_equals_a_rebuild_where_results_are_estimated_too(quick: Path) -> None:
    families = {**FAMILIES, "zoom_graph": {**FAMILIES["zoom_graph"], "exact_rows": 0}}
    index = ManyShards(quick / "store", families=families)
    with pytest.MonkeyPatch.context() as patch:
        make_tiny(patch, close=True)
        for rows in (ROWS, EDITED):
            assert index.planned(rows)[1].published
        cold = index.build(EDITED, cold=True)
        assert cold.manifest == index.beside().build(EDITED).manifest
        with index.snapshot() as snapshot:
            for method in METHODS:
                together = snapshot.retrieve_batch(QUESTIONS, method=method)
                assert [snapshot.retrieve(question, method=method) for question in QUESTIONS] == together


@pytest.mark.slow
def test_a_forgotten_document_leaves_no_trace_and_removed_versions_none_either(both: Both) -> None:
    """The last of the module: it removes what the others read."""
    index, (name, (_, text)) = both.tiny, list(EDITED.items())[-1]
    with index.snapshot() as snapshot:
        assert {"documents", "bm25", "mention_links", "heterograph"} <= traces(snapshot, name, text)
    forget(index.store(), [name], build=lambda: index.build(EDITED))
    collect(str(index.root))
    with index.snapshot() as snapshot:
        assert traces(snapshot, name, text) == set()
        assert snapshot.manifest.corpus.documents == len(EDITED) - 1
    assert verify(StoreReader(index.root)).problems == ()
