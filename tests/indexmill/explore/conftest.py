"""A small index with communities, whose documents have hostile titles and texts, built once."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

import indexmill
from flows.build_run import build_inline
from indexmill.snapshot import Snapshot
from schemas.config import Configuration
from tasks.core.report import Silent
from tests.indexmill.explore.hostile import DOCUMENTS


@pytest.fixture(scope="session")
def hostile_store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store; read it only."""
    folder = tmp_path_factory.mktemp("explore")
    corpus = folder / "corpus.jsonl"
    corpus.write_text("".join(json.dumps(one) + "\n" for one in DOCUMENTS), encoding="utf-8")
    settings = {
        "store": folder / "store",
        "corpus": {"paths": [str(corpus)]},
        "embed": {"model": "hash"},
        "split": {"tokens": 64},
        "families": {"community_tree": {"enabled": True, "fewest": 3, "grain": 20, "largest": 8, "group": 4}},
    }
    build_inline(Configuration.model_validate(settings), progress=Silent())
    return folder / "store"


@pytest.fixture(scope="session")
def snapshot(hostile_store: Path) -> Iterator[Snapshot]:
    """The store, opened."""
    with indexmill.open(hostile_store) as opened:
        yield opened
