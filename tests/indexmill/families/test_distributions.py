"""What families say of their nodes for a report, against small graphs whose links can be counted by hand."""

from __future__ import annotations

from pathlib import Path

import pytest

import indexmill
from indexmill.report.facts import facts_of
from indexmill.retrieve.method_registry import METHODS
from indexmill.retrieve.reader_family import load
from tests.indexmill.families.community_tree.test_retriever import RELATED, THINGS, written
from tests.indexmill.small_snapshot import SnapshotWriter, Text, writer_of
from tests.indexmill.world_heterograph import publish_world

Said = tuple[dict[str, list[int]], list[tuple[str, int]]]


def said(path: Path, family: str) -> Said:
    """The distributions of a family by name, sorted, and its levels."""
    module = load(METHODS[family].distributions)
    with indexmill.open(path) as snapshot:
        sizes = module.sizes(snapshot)
        distributions = {one.name: sorted(one.numbers.tolist()) for one in sizes.distributions}
        return distributions, list(sizes.levels.items())


def test_a_summary_tree_says_its_segments_and_layers(tmp_path: Path) -> None:
    writer = SnapshotWriter(tmp_path)
    writer.shard("p", [Text(one, "", f"Text {one}.") for one in "abcde"])
    writer.lsh_tree([[("ab", [0, 1]), ("cde", [2, 3, 4])], [("all", [0, 1])]])
    writer.publish()
    distributions, levels = said(tmp_path, "lsh_tree")
    assert distributions == {"Sizes of segments": [2, 2, 3]}
    assert levels == [("passages", 5), ("layer 1, summaries", 2), ("layer 2, summaries", 1)]


def test_communities_say_their_members_and_levels(tmp_path: Path) -> None:
    written(tmp_path)
    distributions, levels = said(tmp_path, "community_tree")
    assert distributions["Members of communities"] == [1, 1, 2, 2, 3]
    assert distributions["Passages per extracted entity"] == sorted(len(one.passages) for one in THINGS)
    assert sum(distributions["Related entities per extracted entity"]) == 2 * len(RELATED)
    assert levels == [("entities", 6), ("level 1, communities", 3), ("level 2, communities", 2)]


def test_a_graph_of_passages_and_entities_says_both_degrees(tmp_path: Path) -> None:
    writer = writer_of(tmp_path)
    writer.tri_graph()
    writer.publish()
    distributions, levels = said(tmp_path, "tri_graph")
    assert sum(distributions["Entities per passage"]) == sum(distributions["Passages per entity"]) > 0
    assert len(distributions["Entities per passage"]) == writer.passages
    assert levels == []


def test_a_typed_graph_says_its_kinds_and_links(tmp_path: Path) -> None:
    publish_world(tmp_path)
    distributions, levels = said(tmp_path, "heterograph")
    assert [name for name, _ in levels][:2] == ["texts", "units"]
    assert sum(number for _, number in levels) == len(distributions["Links per node"])
    assert dict(levels)["units"] == 5


@pytest.mark.parametrize("publish", [written, publish_world])
def test_a_report_draws_what_families_say(tmp_path: Path, publish: object) -> None:
    publish(tmp_path)  # type: ignore[operator]
    inside = facts_of(tmp_path).inside
    held = {one.family for one in inside.histograms if one.family}
    assert held
    assert {one.family for one in inside.levels} <= held
