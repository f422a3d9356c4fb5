"""What every family promises whoever builds an index, and whoever reads it: one suite for all of them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.build_run import BuildOutcome
from flows.export import export_snapshot
from flows.forget import forget
from indexmill.errors import FamilyNotFound
from indexmill.hits import Hit
from indexmill.snapshot import Snapshot
from indexmill.store.layout import blob_path
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from schemas.config import FamilySettings
from tasks.core.report import Silent
from tasks.pipeline.plan.plan import Plan
from tests.corpora import told_of
from tests.storage.quick import quick_folder
from tests.tasks.indexes import Index, edited, only, traces

Counts = Mapping[str, Any]


@dataclass(frozen=True)
class Case:
    """A family with settings that make it whole over a handful of documents.

    artifacts, models: what is published with it alone. stages: those of its own, each of which makes parts. texts: a
    stage that writes texts in groups, and what counts them. start: the output, by stage and label, that the next
    version's communities are found from.
    """

    settings: Mapping[str, Any]
    artifacts: set[str]
    stages: set[str]
    models: set[str] = field(default_factory=set)
    texts: tuple[str, str] | None = None
    start: tuple[str, str, str] | None = None


CASES = {
    "bm25": Case({"title_weight": 2}, {"bm25"}, {"bm25"}),
    "tri_graph": Case({}, {"mention_links"}, {"mention_links"}),
    "zoom_graph": Case(
        {"threshold": 0.5, "cap": 4},
        {"document_vectors", "document_links", "mention_links"},
        {"mention_links", "document_vectors", "zoom_links"},
    ),
    "lsh_tree": Case(
        {"smallest": 2, "largest": 4},
        {"lsh_tree", "summaries", "summary_vectors"},
        {"lsh_segments", "lsh_summaries", "lsh_tree"},
        {"llm"},
        ("lsh_summaries", "summaries_made"),
    ),
    "community_tree": Case(
        {"fewest": 3, "grain": 20, "largest": 12, "group": 4},
        {"communities", "community_members", "community_tree", "described", "related", "same_as"},
        {"community_graph", "community_clusters", "community_levels", "community_reports", "community_tree"},
        {"reports", "describer"},
        ("community_reports", "reports_made"),
        ("community_clusters", "k1", "clusters"),
    ),
    "heterograph": Case(
        {"neighbours": 4, "units": 6, "relations": 6, "grain": 0, "largest": 12, "group": 4},
        {"unit_vectors", "attributes", "attribute_vectors", "elements", "element_vectors", "heterograph"},
        {"hetero_units", "hetero_first", "attributes", "hetero_graph", "hetero_groups", "hetero_elements_read"}
        | {"elements", "heterograph"},
        {"attributes", "elements"},
        ("elements", "elements_made"),
        ("hetero_groups", "all", "hetero_communities"),
    ),
}

ROWS = told_of(24)
EDITED = edited(ROWS)
FEWER = dict(list(ROWS.items())[10:])


def index_of(folder: Path, family: str) -> Index:
    """An index with one family."""
    families = only(family, enabled=True, **CASES[family].settings)
    return Index(folder / "store", f"families.{family}", families=families)


@dataclass
class Nights:
    """Three nights of an index with one family, each of which was tried once more. plan: that of the second night."""

    family: str
    index: Index
    plan: Plan
    outcomes: list[BuildOutcome]
    again: list[BuildOutcome]
    outputs: list[Mapping[tuple[str, str], Mapping[str, str]]]


@pytest.fixture(scope="module", params=CASES)
def nights(request: pytest.FixtureRequest) -> Iterator[Nights]:
    with quick_folder() as folder:
        index = index_of(folder, request.param)
        outcomes, again = list[BuildOutcome](), list[BuildOutcome]()
        outputs: list[Mapping[tuple[str, str], Mapping[str, str]]] = []
        for rows in (ROWS, EDITED, FEWER):
            if rows is EDITED:
                plan, outcome = index.planned(rows)
            else:
                outcome = index.build(rows)
            outcomes.append(outcome)
            outputs.append(index.outputs())
            again.append(index.build(rows))
        yield Nights(request.param, index, plan, outcomes, again, outputs)


@dataclass(frozen=True)
class Bare:
    """An index without families. artifacts: of its snapshot. extracted: of the next one, with extraction."""

    snapshot: Snapshot
    artifacts: set[str]
    extracted: set[str]


@pytest.fixture(scope="module")
def bare() -> Iterator[Bare]:
    with quick_folder() as folder:
        index = Index(folder / "store", families=only())
        index.build(FEWER)
        with index.snapshot() as snapshot:
            artifacts = index.artifacts()
            assert index.build(FEWER, extract={"enabled": True}, resolve={"description": {"enabled": True}}).published
            yield Bare(snapshot, artifacts, index.artifacts())


def test_the_families_are_those_of_the_configuration() -> None:
    assert set(CASES) == set(FamilySettings.model_fields) - {"fused", "dense"}


def test_a_build_publishes_what_the_family_says_and_nothing_without_it(nights: Nights, bare: Bare) -> None:
    case, family = CASES[nights.family], nights.family
    assert {stage for stage, _ in nights.outputs[0]} >= case.stages
    without = bare.snapshot
    with nights.index.snapshot() as snapshot:
        assert nights.index.artifacts() - bare.artifacts >= case.artifacts
        assert set(snapshot.manifest.models) - set(without.manifest.models) >= case.models
        assert set(snapshot.manifest.families) - set(without.manifest.families) == {family}
        assert family in snapshot.methods
        with pytest.raises(FamilyNotFound):
            without.retriever(family)
    extracted = {"described", "related", "same_as"}
    assert not bare.extracted & (case.artifacts - extracted)
    published = nights.index.family(family)
    assert published.counts
    assert published.history_dependent == (case.start is not None)


def test_a_night_without_a_change_makes_nothing(nights: Nights) -> None:
    for outcome, again in zip(nights.outcomes, nights.again, strict=True):
        assert outcome.published
        assert (again.published, again.parts_made, again.vectors_made) == (False, 0, 0)
        assert again.manifest == outcome.manifest


def test_an_edit_makes_what_reads_the_document(nights: Nights) -> None:
    """`Index.planned` has held the plan against the build; none of a night without a change makes anything."""
    before, after = nights.outputs[:2]
    changed = {part for part in after if after[part] != before.get(part)}
    grouped = ("count_names", "count_pieces")  # their labels are those of groups of shards
    assert len({label for stage, label in changed if label.startswith("p") and stage not in grouped}) == 1
    assert len({label for stage, label in after if label.startswith("p") and stage not in grouped}) > 3
    assert {label for stage, label in changed if stage in CASES[nights.family].stages}
    first, second = nights.outcomes[:2]
    assert 0 < second.vectors_made < first.vectors_made / 3
    assert set(nights.plan.parts.causes) == {"corpus"}
    plan = nights.index.plan(FEWER)
    assert (plan.publishes, plan.parts.made) == (False, 0)


def test_an_update_equals_a_rebuild(nights: Nights) -> None:
    """Where communities are found from those of the version before, a cold build does: the next test."""
    if CASES[nights.family].start is None:
        assert nights.outcomes[-1].manifest == nights.index.beside().build(FEWER).manifest


@pytest.mark.slow
def test_a_cold_build_equals_a_rebuild_and_a_backfill_a_first_build(nights: Nights) -> None:
    index, first = nights.index, nights.outcomes[0]
    assert index.beside("waves").backfill(ROWS).manifest == first.manifest
    cold = index.build(EDITED, cold=True)
    assert (cold.manifest, cold.parts_reused) == (index.beside().build(EDITED).manifest, 0)
    if CASES[nights.family].start is None:
        assert nights.outcomes[1].manifest == cold.manifest
    again = index.build(EDITED)
    assert (again.published, again.parts_made) == (False, 0)


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name, case in CASES.items() if case.texts])
def test_other_groups_of_texts_copy_each(quick: Path, family: str) -> None:
    stage, count = CASES[family].texts or ("", "")
    index = index_of(quick, family)
    assert index.counts(index.build(ROWS), stage)[count] > 0
    for group in (1, 3, 1000):
        moved = index.build(ROWS, group=group)
        assert index.counts(moved, stage).get(count, 0) == 0
    assert moved.manifest == index.beside().build(ROWS, group=group).manifest


@pytest.mark.slow
@pytest.mark.parametrize("family", [name for name, case in CASES.items() if case.start])
def test_a_lost_start_is_none(quick: Path, family: str) -> None:
    stage, label, output = CASES[family].start or ("", "", "")
    index = index_of(quick, family)
    index.build(ROWS)
    part = index.outputs()[stage, label]
    assert "start" not in part
    index.store().delete(blob_path(part[output]))
    assert index.build(EDITED).manifest == index.beside().build(EDITED).manifest
    index.build(ROWS)
    index.store().delete(blob_path(index.outputs()[stage, label]["start"]))
    index.build(ROWS)
    assert index.store().blob_size(index.outputs()[stage, label]["start"]) is not None
    assert index.build(ROWS).published is False


def test_a_damaged_artifact_is_found(nights: Nights) -> None:
    reader = StoreReader(nights.index.root)
    assert verify(reader).ok
    with nights.index.snapshot() as snapshot:
        artifacts = {one.name.partition("/")[0]: one for one in snapshot.manifest.artifacts}
    for name in CASES[nights.family].artifacts:
        path = nights.index.root / blob_path(artifacts[name].digest)
        data, mode = path.read_bytes(), path.stat().st_mode
        path.chmod(0o600)
        path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        assert artifacts[name].name in {problem.what for problem in verify(reader).problems}
        path.write_bytes(data)
        path.chmod(mode)
    assert verify(reader).ok


def asked(snapshot: Snapshot, family: str) -> list[list[Hit]]:
    """What the family's method finds about three documents, each of which tells of a name of its own."""
    texts = [row["text"] for row in snapshot.table("documents").to_pylist()[:3]]
    questions = [f"Who met {text.split(' met Fenna')[0].split('. ')[-1]}?" for text in texts]
    found = snapshot.retrieve_batch(questions, method=family, k=4)
    return [[dataclasses.replace(hit, version=None) for hit in hits] for hits in found]


@pytest.mark.slow
def test_it_is_retrieved_from_and_an_export_answers_as_the_store_does(nights: Nights) -> None:
    target = nights.index.root.parent / "exported"
    with nights.index.snapshot() as snapshot:
        documents = snapshot.table("documents")["document_id"].to_pylist()
        found = asked(snapshot, nights.family)
        export_snapshot(nights.index.store(), snapshot.version or 0, target, progress=Silent())
    pairs = zip(documents[:3], found, strict=True)
    assert sum(any(one in hit.document_ids for hit in hits) for one, hits in pairs) >= 1
    with indexmill.open(target) as exported:
        assert asked(exported, nights.family) == found


@pytest.mark.slow
@pytest.mark.parametrize(
    "texts",
    [
        [],
        ["nothing here but small words, and no more of them."],
        ["Ada Venn slept."],
        ["Ada Venn slept.", "Rook Falk slept.", "Vell Orrin slept."],
        ["Ada Venn saw Rook Falk. Rook Falk saw Vell Orrin. Vell Orrin saw Ada Venn."] * 3,
    ],
)
@pytest.mark.parametrize("family", CASES)
def test_nothing_one_node_isolated_nodes_and_one_component(quick: Path, family: str, texts: list[str]) -> None:
    rows = {f"doc-{number}": ("", text) for number, text in enumerate(texts)}
    index = index_of(quick, family)
    index.build({"doc": ("", "Ada Venn saw Rook Falk.")})
    assert index.build(rows).published
    with index.snapshot() as snapshot:
        assert bool(snapshot.retrieve("Did Ada Venn sleep?", method=family)) <= bool(texts)
        counts = index.family(family).counts
        held = {"texts": counts.get("texts"), "passages": counts.get("passages")}
        assert set(held.values()) <= {None, len(texts)}
        if CASES[family].start is not None:
            assert counts["entities"] == {0: 0, 1: "Ada" in "".join(texts)}.get(len(texts), 3)
    assert index.build(rows).published is False


@pytest.mark.slow
def test_a_forgotten_document_leaves_no_trace(quick: Path) -> None:
    """All families at once."""
    families = {name: {"enabled": True, **case.settings} for name, case in CASES.items()}
    index = Index(quick / "store", families=families)
    text = "Zqzzzx met Quorra Vexzzz at Kraitzzz Hall. Fenna Rook built the bridge of Vell. Vell is old."
    rows = {**ROWS, "forgotten": ("Fenna Rook", text)}
    index.build(rows)
    with index.snapshot() as snapshot:
        known = traces(snapshot, "forgotten", text)
        assert {"documents", "bm25", "mention_links", "communities", "heterograph"} <= known
    forget(index.store(), ["forgotten"], build=lambda: index.build(rows))
    with index.snapshot() as snapshot:
        assert traces(snapshot, "forgotten", text) == set()
        assert snapshot.manifest.corpus.documents == len(ROWS)
    assert verify(StoreReader(index.root)).ok
    cold = index.build(rows, cold=True)
    assert cold.manifest == index.beside().build(ROWS).manifest
