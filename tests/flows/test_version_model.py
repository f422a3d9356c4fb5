"""Rollbacks, resumes and promotions in any order and by any clock, against a model of three lines."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.promote import promote, remove_alias
from flows.rollback import resume, roll_back
from indexmill.errors import GateRefused, SnapshotNotFound
from indexmill.store.reader import StoreReader
from storage import holds, refs, runs
from storage.folder import FolderStore, open_folder
from tests.deep import examples
from tests.indexmill.small_snapshot import WORLD, Text, publish
from tests.storage.quick import quick_folder

STEPS = st.lists(
    st.tuples(
        st.sampled_from(["roll back", "resume", "promote", "remove"]),
        st.integers(1, 6),  # a version
        st.sampled_from(["prod", "staging"]),
        st.floats(0, 4e9),  # what the clock shows: from 1970 to 2096
    ),
    max_size=8,
)


def three_versions(root: Path) -> FolderStore:
    publish(root, WORLD, 1)
    publish(root, {"p0": WORLD["p0"]}, 2)
    publish(root, {"p0": (Text("a", "A", "one"),)}, 3)
    return open_folder(root)


@examples(5, deep=15)
@given(steps=STEPS)
def test_versions_holds_and_aliases_follow_the_order_of_the_steps_alone(
    steps: list[tuple[str, int, str, float]],
) -> None:
    with quick_folder() as folder:
        store = three_versions(folder / "store")
        reader = StoreReader(store.root)
        manifests = [ref.manifest for ref in reader.history()]
        held: int | None = None
        aliases: dict[str, int] = {}
        for step, version, alias, now in steps:
            there = version <= len(manifests)
            if step == "resume":
                assert resume(store, clock=lambda now=now: now).released == (held is not None)
                held = None
            elif step == "remove" and alias in aliases:
                assert remove_alias(store, alias, clock=lambda now=now: now).before == aliases.pop(alias)
            elif step == "promote" and there:
                before = aliases.get(alias)
                moved = promote(store, version, alias, clock=lambda now=now: now)
                assert (moved.before, moved.moved) == (before, before != version)
                aliases[alias] = version
            elif step == "roll back" and there:
                made = roll_back(store, version, clock=lambda now=now: now)
                assert made.published == (manifests[-1] != manifests[version - 1])
                manifests += [manifests[version - 1]] * made.published
                held = version
            elif step != "remove":
                with pytest.raises(SnapshotNotFound, match=f"version {version}"):
                    promote(store, version, alias) if step == "promote" else roll_back(store, version)
        assert [ref.manifest for ref in reader.history()] == manifests
        assert reader.aliases() == aliases
        hold = reader.hold()
        assert (None if hold is None else hold.version) == held
        if held is not None:
            with pytest.raises(GateRefused, match="indexmill resume"):
                holds.check(store)
        assert {run.state for run in runs.list_runs(store)} <= {"published", "unchanged", "done", "failed"}
        assert refs.newest(store) == reader.newest()
