"""The communities for code that knows no family."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import indexmill
from indexmill import FamilyNotFound
from indexmill.families.community_tree.nodes import communities_of
from indexmill.families.community_tree.rows import CommunityRows
from indexmill.retrieve.method_registry import provided
from tests.indexmill.rights.world import build
from tests.indexmill.small_snapshot import publish


@pytest.mark.slow
def test_rows_follow_the_tree_and_ids_lead_back(tmp_path: Path) -> None:
    with indexmill.open(build(tmp_path)) as snapshot:
        rows, tree = CommunityRows(snapshot), communities_of(snapshot).tree
        assert isinstance(provided(snapshot, "communities"), CommunityRows)
        count = len(rows.parents)
        assert count == len(tree.parents) - tree.leaves > 1
        assert [rows.row(rows.label(row).id) for row in range(count)] == list(range(count))
        assert rows.row("unknown") == -1
        names = dict(zip(snapshot.table("entities")["entity_id"].to_pylist(), rows.of_entities.tolist(), strict=True))
        for leaf in range(tree.leaves):
            assert names[communities_of(snapshot).label(leaf).id] == max(int(tree.parents[leaf]) - tree.leaves, -1)
        everything = np.ones(len(snapshot.table("passages")), dtype=np.bool_)
        assert rows.shown(everything).all()
        assert not rows.shown(~everything).any()


def test_an_index_without_communities_has_no_rows(tmp_path: Path) -> None:
    publish(tmp_path / "s")
    with indexmill.open(tmp_path / "s") as snapshot:
        assert provided(snapshot, "communities") is None
        with pytest.raises(FamilyNotFound):
            CommunityRows(snapshot)
