"""Which part of an index is drawn: bounded, the same every time, and whole in what it says."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import indexmill
from indexmill import BadInput
from indexmill.explore.neighbourhood import HITS, MOST_NODES, neighbourhood
from indexmill.explore.subgraph import Subgraph
from indexmill.retrieve.community_rows import Communities
from indexmill.retrieve.method_registry import provided
from indexmill.snapshot import Snapshot
from indexmill.text.canonical_names import entity_id
from tests.indexmill.explore.hostile import LONG
from tests.indexmill.small_snapshot import Text, publish

QUESTION = "Who built Marrow Bridge with Ada Venn?"


def labels(part: Subgraph, kind: str) -> list[str]:
    return [node.label for node in part.nodes if node.kind == kind]


def is_sound(part: Subgraph) -> bool:
    """True if nodes are distinct, and edges and steps lead between them."""
    ids = {node.id for node in part.nodes}
    ends = {end for edge in part.edges for end in (edge.source, edge.target)}
    steps = {end for step in part.path for end in (step.node, step.source) if end is not None}
    return len(ids) == len(part.nodes) and ends | steps <= set(range(len(part.nodes)))


def community_of(snapshot: Snapshot) -> str:
    held: Communities = provided(snapshot, "communities")
    return held.label(0).id


@pytest.mark.parametrize("nodes", [1, 2, 7, 30, MOST_NODES])
@pytest.mark.parametrize("start", ["entity", "question", "community", "index"])
def test_a_part_is_bounded_sound_and_the_same_every_time(snapshot: Snapshot, start: str, nodes: int) -> None:
    given = {"entity": "ada venn", "question": QUESTION, "community": community_of(snapshot)}
    chosen = {} if start == "index" else {start: given[start]}
    part = neighbourhood(snapshot, nodes=nodes, **chosen)
    assert 1 <= len(part.nodes) <= nodes
    assert is_sound(part)
    assert part == neighbourhood(snapshot, nodes=nodes, **chosen)
    assert json.loads(json.dumps(part.to_dict()))["start"]["kind"] == start


def test_the_largest_part_of_a_small_index_is_all_that_is_connected(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, entity="Ada Venn", nodes=MOST_NODES)
    passages = {node.id for node in part.nodes if node.kind == "passage"}
    assert len(passages) == part.totals["passage"]
    assert (part.nodes[0].role, part.nodes[0].label) == ("start", "Ada Venn")


def test_an_entity_comes_with_its_passages_before_what_they_name(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, entity="The ADA VENN", nodes=4)
    assert part.nodes[0].id == f"entity:{entity_id('ada venn')}"
    assert "passage" in {node.kind for node in part.nodes[1:]}
    linked = {edge.source for edge in part.edges if edge.target == 0 and edge.kind == "mentions"}
    assert linked == {at for at, node in enumerate(part.nodes) if node.kind == "passage" and "Ada Venn" in node.text}


def test_an_entity_is_found_by_its_id_and_an_unknown_one_is_told_what_is_alike(snapshot: Snapshot) -> None:
    by_id = neighbourhood(snapshot, entity=entity_id("ada venn"), nodes=3)
    assert by_id.nodes == neighbourhood(snapshot, entity="Ada Venn", nodes=3).nodes
    with pytest.raises(BadInput, match="no entity 'Ada Ven'; did you mean Ada Venn"):
        neighbourhood(snapshot, entity="Ada Ven")
    for name in ("", "?!", "x" * 50_000, "\ud800", "qqqq zzzz"):
        with pytest.raises(BadInput, match="there is no entity") as caught:
            neighbourhood(snapshot, entity=name)
        assert len(str(caught.value)) < 400


def test_a_question_shows_the_path_of_its_retrieval(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, question=QUESTION, method="tri_graph", nodes=60)
    hits = snapshot.retrieve(QUESTION, method="tri_graph", k=HITS)
    steps = [step for step in part.path if step.role == "hit"]
    assert [part.nodes[step.node].id for step in steps] == [f"passage:{hit.id}" for hit in hits]
    assert [step.score for step in steps] == [hit.score for hit in hits]
    ranks = [part.nodes[step.node].rank for step in steps]
    assert ranks == list(range(1, len(hits) + 1))
    seeds = {part.nodes[step.node].label for step in part.path if step.role == "seed"}
    assert {"Ada Venn", "Marrow Bridge"} <= seeds
    for step in part.path:
        if step.role == "bridge":
            assert step.source is not None
            assert step.text
            assert (step.source, step.node) in {(edge.source, edge.target) for edge in part.edges if edge.path}
    assert {"seed", "hit"} <= {node.role for node in part.nodes}
    assert any(edge.path and edge.kind == "mentions" for edge in part.edges)


@pytest.mark.parametrize("method", ["fused", "community_tree", "lsh_tree", "dense", "bm25", "zoom_graph"])
def test_every_method_has_a_path(snapshot: Snapshot, method: str) -> None:
    part = neighbourhood(snapshot, question=QUESTION, method=method, nodes=60)
    hits = snapshot.retrieve(QUESTION, method=method, k=HITS)
    found = [part.nodes[step.node].id for step in part.path if step.role == "hit"]
    assert found == [f"{hit.kind}:{hit.id}" for hit in hits]
    assert is_sound(part)
    roles = {step.role for step in part.path}
    if method == "community_tree":
        assert roles == {"through", "hit"}
        assert "community" in {part.nodes[step.node].kind for step in part.path}
    if method == "fused":
        assert {"seed", "hit"} <= roles
        assert any(line.startswith("tri_graph: rank") for line in part.nodes[0].why)


def test_a_community_comes_with_what_it_holds_and_what_holds_it(snapshot: Snapshot) -> None:
    held: Communities = provided(snapshot, "communities")
    part = neighbourhood(snapshot, community=held.label(0).id, nodes=80)
    assert part.nodes[0].kind == "community"
    members = {edge.target for edge in part.edges if edge.source == 0 and edge.kind == "member"}
    expected = snapshot.table("entities")["surface"].to_pylist()
    inside = [expected[row] for row, above in enumerate(held.of_entities.tolist()) if above == 0]
    assert sorted(part.nodes[at].label for at in members) == sorted(inside)
    if held.parents[0] >= 0:
        assert f"community:{held.label(int(held.parents[0])).id}" in {node.id for node in part.nodes}


def test_related_entities_are_linked_by_what_a_passage_says(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, entity="Ada Venn", nodes=100)
    related = [edge for edge in part.edges if edge.kind == "related"]
    assert related
    assert all(part.nodes[edge.source].kind == part.nodes[edge.target].kind == "entity" for edge in related)
    assert any(edge.text for edge in related)


def test_names_are_one_short_line_whatever_the_documents_say(snapshot: Snapshot) -> None:
    part = neighbourhood(snapshot, nodes=MOST_NODES)
    assert LONG.strip() not in {node.label for node in part.nodes}
    for node in part.nodes:
        assert 0 < len(node.label) <= 120
        assert node.label == " ".join(node.label.split())
        assert not set("\u202e\u2066\u0000\n") & set(node.label)
        assert node.url is None or node.url.startswith("https://")


def test_ids_of_documents_are_those_of_the_index(tmp_path: Path) -> None:
    publish(tmp_path / "s", {"p": [Text("a  b\t\u202ec", "", "One.")]})
    with indexmill.open(tmp_path / "s") as opened:
        (node,) = neighbourhood(opened).nodes
    assert node.document_ids == ("a  b\t\u202ec",)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"entity": "Ada Venn", "question": "x"}, "an entity and a question are given"),
        ({"entity": "Ada Venn", "community": "x"}, "an entity and a community are given"),
        ({"method": "dense"}, "only determines how a question's hits are retrieved"),
        ({"nodes": 0}, "nodes is 0"),
        ({"nodes": MOST_NODES + 1}, "nodes is 2001"),
        ({"question": "x", "method": "nothing"}, "there is no method 'nothing'"),
    ],
)
def test_wrong_starts_are_refused(snapshot: Snapshot, given: dict[str, object], said: str) -> None:
    with pytest.raises(BadInput, match=said):
        neighbourhood(snapshot, **given)  # type: ignore[arg-type]


def test_an_unknown_community_and_an_index_without_communities_are_told_apart(
    snapshot: Snapshot, tmp_path: Path
) -> None:
    with pytest.raises(BadInput, match="there is no community 'x'"):
        neighbourhood(snapshot, community="x")
    publish(tmp_path / "s")
    with indexmill.open(tmp_path / "s") as bare:
        with pytest.raises(BadInput, match="no communities"):
            neighbourhood(bare, community="x")
        part = neighbourhood(bare)
        assert {node.kind for node in part.nodes} == {"passage"}
        assert neighbourhood(bare, question="").nodes == ()
        with pytest.raises(BadInput, match="there is no entity"):
            neighbourhood(bare, entity="Ada Venn")
