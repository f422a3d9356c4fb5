"""What every retrieval method promises, whatever it is asked: over one built snapshot that holds all of them."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from pydantic import JsonValue

import indexmill
from flows.build_run import build_inline
from flows.export import export_snapshot
from indexmill.errors import BadInput, ConfigurationError, FamilyNotFound
from indexmill.evaluate.recall import Question, evaluate
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.community_tree.parameters import CommunityTreeParameters
from indexmill.families.heterograph.nodes import heterograph_of
from indexmill.families.lsh_tree.summaries import summaries_of
from indexmill.families.zoom_graph.graph import MOST_MATRICES
from indexmill.families.zoom_graph.retriever import ZoomGraphReader
from indexmill.hits import Hit
from indexmill.retrieve.method_registry import METHODS
from indexmill.snapshot import Snapshot
from indexmill.store.manifest import FamilyRecord
from schemas.config import Configuration
from storage.folder import open_folder
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.tiny_sizes import make_tiny

ODD = (
    "Who?",
    "Zarathustra Quux and the Blorp of Nnnn",
    "東西南北はどこですか",
    "Где находится мост?",
    "\N{BRIDGE AT NIGHT}\N{BRIDGE AT NIGHT}",
    "?!",
    "bridge of Vell " * 700,
    "a\x00b \x7f\u202e",
)

UNEVEN = ("bm25", "heterograph")
"""Methods that find more for one question than for another: words that are shared, nodes that a walk reaches."""

OTHERS: dict[str, dict[str, object]] = {
    "bm25": {"k1": 0.4, "b": 0.1, "common_words": True},
    "community_tree": {"reach": 3, "similarity_weight": 0.6},
    "dense": {"title": 1.5},
    "fused": {"bm25": 2.0, "dense": 1.0, "tri_graph": 0.0, "zoom_graph": 0.0, "pool": 7},
    "heterograph": {"restart": 0.2, "steps": 3},
    "lsh_tree": {"pattern": "summarised", "ratio": 0.6},
    "tri_graph": {"damping": 0.9, "agreement": 0.0, "activation_threshold": 0.2},
    "zoom_graph": {"title_weight": 1, "scale": "links", "agreement": 0, "nearest_name": 0.2},
}
"""Settings that change what each method finds."""

METHOD = pytest.mark.parametrize("method", sorted(METHODS))


def built(folder: Path, **families: object) -> Path:
    corpus = write_corpus(folder / "corpus.jsonl", documents(40, words=90))
    settings = {
        "store": folder / "store",
        "corpus": {"paths": [str(corpus)]},
        "embed": {"model": "hash"},
        "split": {"tokens": 48},
        "shards": {"document_tokens": 1_000, "entities": 64},
        "families": {"community_tree": {"enabled": True}, "heterograph": {"enabled": True}, **families},
    }
    build_inline(Configuration.model_validate(settings), progress=Silent())
    return folder / "store"


@pytest.fixture(scope="module", autouse=True, params=["usual", pytest.param("tiny", marks=pytest.mark.slow)])
def sizes(request: pytest.FixtureRequest) -> Iterator[None]:
    """Of what cuts work and data: the usual ones, and tiny ones, by which all of it is cut many times."""
    with pytest.MonkeyPatch.context() as patch:
        if request.param == "tiny":
            make_tiny(patch)
        yield


@pytest.fixture(scope="module")
def snapshot(sizes: None, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Snapshot]:
    with indexmill.open(built(tmp_path_factory.mktemp("methods"))) as opened:
        yield opened


@pytest.fixture(scope="module")
def helped(snapshot: Snapshot) -> Iterator[Snapshot]:
    """The same, answered by two helper processes."""
    with indexmill.open(snapshot.path, processes=2) as opened:
        yield opened


def findable(snapshot: Snapshot, method: str) -> int:
    """How many hits a method has at most."""
    passages = snapshot.manifest.corpus.passages
    if method == "lsh_tree":
        return passages + len(summaries_of(snapshot))
    if method == "community_tree":
        tree = communities_of(snapshot).tree
        given = [int((~tree.single[list(tree.rows(level))]).sum()) for level in range(tree.height + 1)]
        return passages + sum(min(number, CommunityTreeParameters().k_level) for number in given)
    if method == "heterograph":
        return int(heterograph_of(snapshot).graph.offsets[5])
    return passages


def questions(snapshot: Snapshot) -> list[str]:
    texts = snapshot.table("documents", ["title", "text"]).to_pylist()
    return [*ODD, *(f"Who met {row['title']}? {row['text'][:60]}" for row in texts[:20])]


def test_all_methods_are_held(snapshot: Snapshot) -> None:
    assert set(snapshot.methods) == set(METHODS)


@pytest.mark.slow
@METHOD
def test_odd_questions_have_hits_or_none(snapshot: Snapshot, method: str) -> None:
    found = snapshot.retrieve_batch(ODD, method=method, k=5)
    assert all(len(hits) == 5 for hits in found) or method == "bm25"  # which finds nothing where no word is shared
    assert snapshot.retrieve(" \n ", method=method) == []
    assert len(snapshot.retrieve(ODD[6], method=method, k=5)) == 5


@METHOD
def test_a_batch_gives_each_question_what_it_gets_alone(snapshot: Snapshot, method: str) -> None:
    asked = questions(snapshot)
    alone = [snapshot.retrieve(question, method=method, k=7) for question in asked]
    assert snapshot.retrieve_batch(asked, method=method, k=7) == alone
    assert snapshot.retrieve_batch(asked[::-1], method=method, k=7)[::-1] == alone
    bare = snapshot.retrieve_batch(asked, method=method, k=7, explain=False)
    assert bare == [[replace(hit, explanation=None) for hit in hits] for hits in alone]


@pytest.mark.slow
@METHOD
def test_helpers_give_each_question_what_it_gets_here(snapshot: Snapshot, helped: Snapshot, method: str) -> None:
    asked = questions(snapshot)
    assert helped.retrieve_batch(asked, method=method, k=7) == snapshot.retrieve_batch(asked, method=method, k=7)
    some = snapshot.table("documents", ["document_id"]).column("document_id").to_pylist()[::2]
    given = {
        "method": method,
        "k": 30,
        "explain": False,
        "where": {"document_id": some},
        "names": [["Vell", "bridge"] for _ in asked * 9],
    }
    assert helped.retrieve_batch(asked * 9, **given) == snapshot.retrieve_batch(asked * 9, **given)
    vectors = snapshot.encode(asked)
    given = {"method": method, "vectors": vectors}
    assert helped.retrieve_batch(asked, **given) == snapshot.retrieve_batch(asked, **given)


@METHOD
def test_hits_are_distinct_and_best_first_and_fewer_are_the_first_of_more(snapshot: Snapshot, method: str) -> None:
    asked = questions(snapshot)
    found = findable(snapshot, method)
    for few, many in zip(
        snapshot.retrieve_batch(asked, method=method, k=6, explain=False),
        snapshot.retrieve_batch(asked, method=method, k=found + 10, explain=False),
        strict=True,
    ):
        assert few == many[:6]
        assert len({hit.id for hit in many}) == len(many)
        assert len(many) == found or method in UNEVEN
        assert [hit.score for hit in many] == sorted((hit.score for hit in many), reverse=True)
        if method == "heterograph":
            assert [hit.kind for hit in many].count("text") == snapshot.manifest.corpus.passages


@pytest.mark.slow
@METHOD
def test_a_filter_leaves_k_hits_where_k_exist(snapshot: Snapshot, method: str) -> None:
    asked = questions(snapshot)
    ids = snapshot.table("documents", ["document_id"]).column("document_id").to_pylist()
    some = ids[::5]
    for hits in snapshot.retrieve_batch(asked, method=method, k=8, where={"document_id": some}):
        assert {one for hit in hits for one in hit.document_ids} <= set(some)
        assert len(hits) == 8 or method == "bm25"
    nothing = snapshot.retrieve_batch(asked, method=method, where={"document_id": "no such document"})
    assert nothing == [[] for _ in asked]


@pytest.mark.slow
@METHOD
def test_vectors_made_elsewhere_are_enough(snapshot: Snapshot, method: str) -> None:
    known = questions(snapshot)[len(ODD) :]
    vectors = snapshot.encode(known)
    for one, other in zip(
        snapshot.retrieve_batch(known, method=method, k=5, vectors=vectors),
        snapshot.retrieve_batch(known, method=method, k=5),
        strict=True,
    ):
        # A name that no entity has is looked up by its vector only where there is an encoder.
        assert len(one) == len(other)
        assert np.isfinite([hit.score for hit in one]).all()
    with_names = snapshot.retrieve_batch(known, method=method, k=5, vectors=vectors, encode_names=True)
    assert with_names == snapshot.retrieve_batch(known, method=method, k=5)


@pytest.mark.parametrize("absent", ["bm25", "community_tree", "heterograph", "lsh_tree", "tri_graph", "zoom_graph"])
def test_a_snapshot_without_a_family_says_so_and_still_fuses_the_others(
    snapshot: Snapshot, absent: str, tmp_path: Path
) -> None:
    shutil.copytree(snapshot.path, tmp_path / "store")  # the next version is made of the same parts
    with indexmill.open(built(tmp_path, **{absent: {"enabled": False}})) as without:
        assert without.version == 2
        assert set(without.methods) == set(METHODS) - {absent}
        with pytest.raises(FamilyNotFound, match=f"does not contain '{absent}'; it has fused"):
            without.retrieve("Who?", method=absent)
        hits = without.retrieve(questions(without)[-1], k=5)
        assert len(hits) == 5
        assert hits[0].explanation is not None
        assert absent not in {one["name"] for one in hits[0].explanation["methods"]}


@METHOD
def test_a_question_is_answered_from_the_hits_that_it_finds(snapshot: Snapshot, method: str) -> None:
    question = questions(snapshot)[-1]
    answer = snapshot.answer(question, method=method, k=3)
    assert answer.hits == tuple(snapshot.retrieve(question, method=method, k=3, explain=False))
    assert (answer.method, answer.version) == (method, 1)
    assert any(answer.text in hit.text for hit in answer.hits)
    assert answer.context_tokens > 0


@pytest.mark.slow
def test_the_tokens_of_the_context_are_measured_for_every_method(snapshot: Snapshot) -> None:
    asked = [Question(str(i), text, ("doc-0001",)) for i, text in enumerate(questions(snapshot)[-4:])]
    found = evaluate(snapshot, asked, ks=(2,)).methods
    assert set(found) == set(METHODS)
    for method, result in found.items():
        texts = [one.question for one in asked]
        # As an evaluation has them: with vectors, by which no name is encoded.
        vectors = snapshot.encode(texts) if snapshot.retriever(method).uses_vectors else None
        hits = snapshot.retrieve_batch(texts, method=method, k=200, vectors=vectors)
        needed = 0
        for of_one in hits:
            documents: set[str] = set()
            for hit in of_one:
                needed += hit.tokens or 0
                documents.update(hit.document_ids if hit.kind in ("passage", "text", "unit") else ())
                if len(documents) == 2:
                    break
        assert result.tokens_per_question == needed / len(asked) > 0


@pytest.fixture(scope="module")
def folder(snapshot: Snapshot, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same, exported."""
    folder = tmp_path_factory.mktemp("exported") / "folder"
    export_snapshot(open_folder(snapshot.path), 1, folder, progress=Silent())
    return folder


@METHOD
def test_an_exported_folder_answers_as_the_store_does(snapshot: Snapshot, folder: Path, method: str) -> None:
    asked = questions(snapshot)
    expected = snapshot.retrieve_batch(asked, method=method, k=7)
    with indexmill.open(folder) as exported:
        assert exported.retrieve_batch(asked, method=method, k=7) == [
            [replace(hit, version=None) for hit in hits] for hits in expected
        ]


@METHOD
def test_a_published_setting_that_is_not_known_here_is_refused(snapshot: Snapshot, method: str) -> None:
    with indexmill.open(snapshot.path) as published:
        published.manifest.families[method] = FamilyRecord(parameters={"beam": 3}, counts={})
        with pytest.raises(ConfigurationError, match=r"no parameters \['beam'\]"):
            published.retrieve("Who?", method=method)


@pytest.mark.slow
@pytest.mark.parametrize("method", sorted(OTHERS))
def test_settings_of_a_call_do_what_published_ones_do(snapshot: Snapshot, helped: Snapshot, method: str) -> None:
    asked, others = questions(snapshot), OTHERS[method]
    own = snapshot.retrieve_batch(asked, method=method, k=9)
    found = snapshot.retrieve_batch(asked, method=method, k=9, parameters=others)
    assert found != own
    with indexmill.open(snapshot.path) as published:
        published.manifest.families[method] = FamilyRecord(parameters=others, counts={})  # type: ignore[arg-type]
        assert published.retrieve_batch(asked, method=method, k=9) == found
    assert helped.retrieve_batch(asked, method=method, k=9, parameters=others) == found
    assert snapshot.retrieve_batch(asked, method=method, k=9) == own


@METHOD
def test_other_settings_read_nothing_again(snapshot: Snapshot, method: str, monkeypatch: pytest.MonkeyPatch) -> None:
    given = OTHERS.get(method, {})
    before = snapshot.retriever(method)
    opened = list[str]()
    for name in ("arrays", "table", "vectors", "file"):
        monkeypatch.setattr(Snapshot, name, lambda self, *given: opened.append(str(given)))
    before.with_parameters(given)
    before.with_parameters(given)
    assert opened == []


@METHOD
def test_an_unknown_setting_is_refused_with_those_there_are(snapshot: Snapshot, method: str) -> None:
    with pytest.raises(BadInput, match=f"unknown 'colour'; the method's parameters are .*{next(iter(OTHERS[method]))}"):
        snapshot.retrieve("Who?", method=method, parameters={"colour": 1})


@pytest.mark.parametrize(
    ("method", "name", "value"),
    [
        ("tri_graph", "damping", "0.85"),
        ("tri_graph", "damping", True),
        ("tri_graph", "damping", 1.5),
        ("tri_graph", "hops", 1.5),
        ("tri_graph", "pruning", 1),
        ("tri_graph", "reading", "least"),
        ("zoom_graph", "scale", "rows"),
        ("zoom_graph", "title_weight", float("nan")),
        ("bm25", "b", -0.1),
        ("dense", "title", -0.1),
        ("dense", "title", 11),
        ("fused", "pool", 0),
        ("fused", "dense", -1),
        ("lsh_tree", "pattern", "deep"),
        ("lsh_tree", "ratio", "0.5"),
        ("lsh_tree", "token_budget", 2.5),
        ("community_tree", "k_level", 0),
        ("community_tree", "level_weight", float("inf")),
        ("heterograph", "restart", 1.0),
        ("heterograph", "texts", -1),
    ],
)
def test_a_setting_of_another_kind_is_refused(snapshot: Snapshot, method: str, name: str, value: object) -> None:
    with pytest.raises(BadInput, match=f"{name} is {value!r}"):
        snapshot.retrieve("Who?", method=method, parameters={name: value})


def test_fused_hands_settings_on_to_what_it_combines(snapshot: Snapshot) -> None:
    asked = questions(snapshot)
    only = {"tri_graph": 1, "zoom_graph": 0, "bm25": 0, "dense": 0, "community_tree": 0}
    given: dict[str, JsonValue] = {"damping": 0.9, "agreement": 0.0}
    fused = snapshot.retrieve_batch(
        asked, method="fused", k=9, parameters={**only, **{f"tri_graph.{name}": its for name, its in given.items()}}
    )
    with indexmill.open(snapshot.path) as published:
        published.manifest.families["tri_graph"] = FamilyRecord(parameters=given, counts={})
        assert published.retrieve_batch(asked, method="fused", k=9, parameters=only) == fused
    assert fused != snapshot.retrieve_batch(asked, method="fused", k=9, parameters=only)
    with pytest.raises(BadInput, match=r"unknown 'dampng'; the method's parameters are .*\(did you mean 'damping'\?\)"):
        snapshot.retrieve("Who?", parameters={"tri_graph.dampng": 0.85})
    with pytest.raises(
        BadInput, match=r"names 'trigraph.damping'; fused combines only tri_.*\(did you mean 'tri_graph'\?\)"
    ):
        snapshot.retrieve("Who?", parameters={"trigraph.damping": 0.85})
    with pytest.raises(BadInput, match=r"names 'tri_graph.damping'; fused combines only zoom_.* with a weight$"):
        snapshot.retrieve("Who?", parameters={"tri_graph": 0, "tri_graph.damping": 0.85})


@pytest.mark.slow
@pytest.mark.parametrize("method", ["community_tree", "heterograph", "lsh_tree", "tri_graph"])
def test_titles_count_wherever_the_nearest_passages_do_but_not_in_the_papers(snapshot: Snapshot, method: str) -> None:
    asked = questions(snapshot)
    found: dict[float, list[list[list[Hit]]]] = {}
    for weight in (0.0, 9.0):
        with indexmill.open(snapshot.path) as published:
            published.manifest.families["dense"] = FamilyRecord(parameters={"title": weight}, counts={})
            paper = published.retrieve_batch(asked, method=method, k=30, parameters={"preset": "paper"})
            found[weight] = [paper, published.retrieve_batch(asked, method=method, k=30)]
    assert found[0.0][0] == found[9.0][0]
    assert found[0.0][1] != found[9.0][1]


def test_matrices_of_zoom_graph_are_made_once_for_each_scale_and_few_are_held(snapshot: Snapshot) -> None:
    retriever = snapshot.retriever("zoom_graph")
    assert isinstance(retriever, ZoomGraphReader)
    graph = retriever._graph
    own = graph.matrix
    assert graph.with_parameters(agreement=0.1).matrix is own
    other = graph.with_parameters(title_weight=2.0).matrix
    assert other is not own
    assert graph.with_parameters(title_weight=2.0, steps=2).matrix is other
    for weight in range(MOST_MATRICES):
        graph.with_parameters(title_weight=30.0 + weight)
        assert graph.with_parameters(title_weight=30.0 + weight).matrix is not other
    assert graph.with_parameters(title_weight=2.0).matrix is not other


@pytest.mark.slow
def test_evaluation_takes_settings_by_method(snapshot: Snapshot) -> None:
    asked = [
        Question(str(i), f"Who met {row['title']}?", (row["document_id"],))
        for i, row in enumerate(snapshot.table("documents", ["document_id", "title"]).to_pylist()[:12])
    ]
    own = evaluate(snapshot, asked, ["tri_graph", "bm25"], (1,))
    other = evaluate(snapshot, asked, ["tri_graph", "bm25"], (1,), parameters={"bm25": {"k1": 0.0}})
    assert other.methods["tri_graph"].recall == own.methods["tri_graph"].recall
    with pytest.raises(BadInput, match="parameters= has settings of fused, but only tri_graph, bm25 are evaluated"):
        evaluate(snapshot, asked, ["tri_graph", "bm25"], (1,), parameters={"fused": {"pool": 9}})
    with pytest.raises(BadInput, match="unknown 'pool'; the method's parameters are k1"):
        evaluate(snapshot, asked, ["bm25"], (1,), parameters={"bm25": {"pool": 9}})
