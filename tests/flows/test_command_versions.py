"""The commands that compare versions, go back, and move names: what they print, and how they end."""

from __future__ import annotations

from pathlib import Path

import pytest

from indexmill.command import main
from indexmill.store.reader import StoreReader
from storage.folder import FolderStore, open_folder
from storage.lease import acquire
from tests.flows.children import build
from tests.flows.commands import Run, write_settings
from tests.flows.versions import Versions


@pytest.fixture
def root(two_versions: FolderStore) -> Path:
    return two_versions.root


@pytest.fixture
def run(root: Path, capsys: pytest.CaptureFixture[str]) -> Run:
    return Run(capsys, "--store", root)


def test_diff_tells_what_a_refresh_changed(run: Run, versions: Versions) -> None:
    found = run.json("diff")
    assert (found["a"]["version"], found["b"]["version"], found["equal"]) == (1, 2, False)
    assert [side["manifest"] for side in (found["a"], found["b"])] == list(versions.manifests)
    assert found["documents"] == {"added": 1, "changed": 1, "removed": 1, "moved": 1, "unchanged": 13}
    assert found["document_ids"] == {
        "added": ["doc-0100"],
        "changed": ["doc-0003"],
        "removed": ["doc-0007"],
        "moved": [{"from": "doc-0005", "to": "doc-0099"}],
    }
    assert found["passages"]["added"] >= 3
    assert {"Zed Omar", "Saint Corvin"} <= set(found["entity_names"]["added"])
    assert found["families"].keys() == {"bm25", "dense", "fused", "lsh_tree", "tri_graph", "zoom_graph"}
    assert found["families"]["tri_graph"]["b"]["passages"] == found["b"]["passages"]
    assert 0 < found["bytes"]["new"] < found["bytes"]["b"]
    assert found["cost"]["vectors_made"] > 0
    assert (found["settings"], found["models"], found["environment"]) == ({}, {}, {})


def test_diff_prints_a_short_page(run: Run) -> None:
    assert run("diff", "--limit", 1) == 0
    lines = run.out.splitlines()
    assert lines[1] == "documents  1 added, 1 changed, 1 removed, 1 moved, 13 unchanged"
    assert "  moved:   doc-0005 -> doc-0099" in lines
    assert any(line.startswith("  added:") and line.endswith("more") for line in lines)
    assert any(line.split()[:2] == ["tri_graph", "entities"] for line in lines)
    assert len(lines) < 30
    assert run("diff", "--limit", 0) == 0
    assert "doc-0005" not in run.out


def test_diff_takes_numbers_aliases_and_newest_and_ends_with_0_when_equal(run: Run) -> None:
    assert run("promote", 1, "prod") == 0
    for words, pair in (((1, 2), (1, 2)), (("prod",), (1, 2)), (("newest", "prod"), (2, 1)), ((2,), (2, 2))):
        found = run.json("diff", *words)
        assert (found["a"]["version"], found["b"]["version"]) == pair
        assert found["equal"] == (pair[0] == pair[1])
    assert run("diff", 1, 1) == 0
    assert "equal" in run.out
    assert run("diff", 1, 9) == 2
    assert "versions 1 to 2" in run.err
    assert run("diff", "nobody") == 2
    assert "it has prod" in run.err


def test_diff_tells_settings_and_families_that_differ(run: Run, root: Path, versions: Versions) -> None:
    changed = versions.settings(root) | {"families": {"zoom_graph": {"enabled": False}}, "split": {"tokens": 64}}
    build(changed)
    found = run.json("diff")
    assert found["settings"]["split.tokens"] == [256, 64]
    assert found["settings"]["families.zoom_graph.enabled"] == [True, False]
    assert found["families"]["zoom_graph"]["b"] is None
    assert found["documents"]["unchanged"] == found["b"]["documents"]
    assert found["passages"]["added"] > 0
    assert run("diff") == 0
    assert "settings: split.tokens is 64, was 256" in run.out
    assert "zoom_graph: gone" in run.out


def test_rollback_holds_the_store_and_build_says_how_to_go_on(
    run: Run, inline: None, root: Path, versions: Versions, tmp_path: Path
) -> None:
    configuration = write_settings(tmp_path / "indexmill.yaml", versions.settings(root))
    made = run.json("rollback", 1, "--note", "bad names")
    assert (made["published"], made["version"], made["target"]) == (True, 3, 1)
    assert (made["manifest"], made["hold"]["note"]) == (versions.manifests[0], "bad names")
    assert run("build", "-c", configuration) == 3
    assert "bad names" in run.err
    assert "`indexmill resume`" in run.err
    assert run.json("snapshots")["hold"]["version"] == 1
    assert run("snapshots") == 0
    *_, last = run.out.splitlines()
    assert last.startswith("on hold since ")
    assert last.endswith("bad names; `indexmill resume` allows builds again")
    assert run("rollback", 1) == 0
    assert run.out.startswith("nothing to publish: version 3")
    assert run.json("resume")["released"]
    assert run.json("snapshots")["hold"] is None
    assert not run.json("resume")["released"]
    assert run("build", "-c", configuration) == 0
    assert run.out.startswith("published version 4")
    commands = [(one["command"], one["state"]) for one in run.json("runs")["runs"]][2:]
    assert commands == [
        ("rollback", "published"),
        ("build", "refused"),
        ("rollback", "unchanged"),
        ("resume", "done"),
        ("resume", "unchanged"),
        ("build", "published"),
    ]


def test_rollback_and_resume_wait_for_who_holds_the_lease(run: Run, root: Path) -> None:
    with acquire(open_folder(root), "at-work"):
        assert run("rollback", 1) == 5
        assert "at-work" in run.err
        assert run("resume") == 5
    assert run("rollback", 9) == 2
    assert StoreReader(root).versions() == [1, 2]


def test_promote_moves_and_removes_and_snapshots_shows_where(run: Run) -> None:
    assert run.json("promote", "newest", "staging")["version"] == 2
    told = run.json("promote", 1, "prod", "--note", "measured")
    assert told | {"run": ""} == {"alias": "prod", "version": 1, "before": None, "moved": True, "run": ""}
    assert run("promote", "staging", "prod") == 0
    assert run.out == "prod is at version 2; it was at version 1\n"
    assert run("promote", "staging", "prod") == 0
    assert run.out.startswith("nothing to do")
    assert run("snapshots") == 0
    assert "  prod, staging  " in run.out
    assert run("promote", "--remove", "prod") == 0
    assert run.json("snapshots")["aliases"] == {"staging": 2}
    assert run("query", "Who built the bridge?", "--alias", "prod") == 2
    assert run("query", "Who built the bridge?", "--alias", "") == 2  # a variable of a script that is not set
    assert "it has staging" in run.err
    for words in ((1,), (), ("prod", "--remove", "prod"), (1, "7"), (1, "newest")):
        assert run("promote", *words) == 2


@pytest.mark.parametrize("command", ["diff", "rollback", "resume", "promote", "export"])
def test_help_teaches(run: Run, command: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([command, "--help"]) == 0
    text = capsys.readouterr().out
    assert "--json" in text
    assert len(text.splitlines()) > 15
