"""Same input, same bytes: whatever the workers, the order of lines and files, the hash seed, or the way to a corpus."""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import indexmill
from flows.build_run import BuildOutcome
from tests.corpora import Documents, documents, write_corpus
from tests.deep import WHOLE
from tests.flows.children import Ended, Forks, build, settings
from tests.paths import ROOT

COMMUNITIES: dict[str, Any] = {
    "resolve": {"description": {"most_pieces": 3}},
    "families": {
        "community_tree": {"enabled": True, "fewest": 3, "grain": 10, "largest": 12, "group": 4},
        "heterograph": {"enabled": True, "neighbours": 4, "grain": 0, "largest": 12, "group": 4},
    },
}
"""Extraction, descriptions, some of them of many pieces, communities of several levels and groups, and elements."""


@pytest.fixture(scope="module")
def corpus(memory: Path) -> Path:
    return write_corpus(memory / "corpus.jsonl", documents(30, words=110))


@pytest.fixture(scope="module")
def made(memory: Path, corpus: Path) -> BuildOutcome:
    """The corpus in its own order, built in this process."""
    made = build(settings(memory / "first", corpus, **COMMUNITIES))
    assert made.parts_made > 30  # many shards, in which order could matter
    return made


@pytest.fixture(scope="module")
def forks() -> Iterator[tuple[Forks, Forks]]:
    """Child processes with one hash seed, and others with another."""
    with Forks(hash_seed="0") as zero, Forks(hash_seed="1") as one:
        yield zero, one


def finished(ended: Ended) -> BuildOutcome:
    assert ended.outcome is not None, ended.message
    return ended.outcome


def shuffled(corpus: Path, folder: Path, files: int, seed: int) -> list[Path]:
    """The lines of a corpus in another order, in several files that are listed in yet another."""
    lines = corpus.read_bytes().splitlines(keepends=True)
    chance = random.Random(seed)  # noqa: S311
    chance.shuffle(lines)
    folder.mkdir()
    paths = []
    for number in range(files):
        data = b"".join(lines[number::files])
        path = folder / (f"{number}.jsonl.gz" if number % 2 else f"{number}.jsonl")
        path.write_bytes(gzip.compress(data) if number % 2 else data)
        paths.append(path)
    chance.shuffle(paths)
    return paths


@pytest.mark.slow
def test_the_hash_seed_and_the_order_of_lines_and_files_do_not_change_a_byte(
    forks: tuple[Forks, Forks], made: BuildOutcome, corpus: Path, tmp_path: Path
) -> None:
    plain = finished(forks[0].build(settings(tmp_path / "plain", corpus, **COMMUNITIES)))
    pieces = shuffled(corpus, tmp_path / "pieces", 3, seed=5)
    mixed = finished(forks[1].build(settings(tmp_path / "mixed", *pieces, **COMMUNITIES)))
    assert plain.manifest == mixed.manifest == made.manifest
    assert plain.vectors_made == mixed.vectors_made == made.vectors_made


@pytest.mark.slow
@pytest.mark.parametrize("workers", [pytest.param(1, marks=pytest.mark.slow), 2])
def test_workers_or_none_make_the_same_bytes(
    forks: tuple[Forks, Forks], made: BuildOutcome, corpus: Path, tmp_path: Path, workers: int
) -> None:
    pieces = shuffled(corpus, tmp_path / "pieces", 4, seed=6)
    found = finished(forks[1].build(settings(tmp_path / "store", *pieces, **COMMUNITIES), workers=workers))
    assert found.manifest == made.manifest
    assert found.parts_made == made.parts_made
    assert found.vectors_made == made.vectors_made


@pytest.mark.slow
def test_where_a_corpus_lies_and_how_a_run_works_do_not_reach_a_byte(
    made: BuildOutcome, corpus: Path, tmp_path: Path
) -> None:
    elsewhere = tmp_path / "another name.jsonl"
    elsewhere.write_bytes(corpus.read_bytes())
    run = {"workers": 7, "lease_seconds": 30, "strict": True}
    chosen = settings(tmp_path / "a" / "store", elsewhere, run=run, **COMMUNITIES)
    assert build(chosen).manifest == made.manifest


def rows_of(root: Path, version: int) -> tuple[dict[str, int], set[bytes]]:
    """The number of vectors that each document's text has, and the keys of the names and titles that have one."""
    with indexmill.open(root, version=version) as snapshot:
        passages = snapshot.table("passages", ["passage_id", "document_id"]).to_pylist()
        sentences = snapshot.table("sentences", ["passage_id"]).column(0).to_pylist()
        names = {b"name" + key.tobytes() for keys in snapshot.vectors("names", "keys") for key in keys}
        names |= {b"title" + key.tobytes() for keys in snapshot.vectors("titles", "text_keys") for key in keys}
    owner = {row["passage_id"]: row["document_id"] for row in passages}
    vectors: dict[str, int] = {}
    for passage in [*owner, *sentences]:
        vectors[owner[passage]] = vectors.get(owner[passage], 0) + 1
    return vectors, names


def changed(rows: Documents) -> tuple[Documents, set[str]]:
    """One document edited, one added, one removed; and the ids whose vectors are new."""
    edited, removed = sorted(rows)[3], sorted(rows)[11]
    after = dict(rows)
    title, text = after[edited]
    after[edited] = (title, text + " Later Yorrick Ansel of Nine Mills bought the ferry in 1712.")
    after["added"] = ("The Nine Mills", "The Nine Mills stood at Orrin Bay. Yorrick Ansel of Nine Mills owned them.")
    del after[removed]
    return after, {edited, "added"}


def update_equals_rebuild(
    rows: Documents, folder: Path, forks: tuple[Forks, Forks], workers: int | None, **changes: dict[str, Any]
) -> None:
    """Build, change three documents, build again; then the changed corpus alone, shuffled, in a second store."""
    after, touched = changed(rows)
    updating, rebuilding = forks
    before = write_corpus(folder / "before.jsonl", rows)
    later = write_corpus(folder / "later.jsonl", after)
    root = folder / "updated"
    first = finished(updating.build(settings(root, before, **changes)))
    second = finished(updating.build(settings(root, later, **changes)))
    pieces = shuffled(later, folder / "pieces", 3, seed=7)
    fresh = finished(rebuilding.build(settings(folder / "fresh", *pieces, **changes), workers=workers))
    assert (first.version, second.version, fresh.version) == (1, 2, 1)
    assert second.manifest == fresh.manifest != first.manifest
    _, names_before = rows_of(root, 1)
    vectors, names = rows_of(root, 2)
    touched_rows = sum(vectors[document] for document in touched) + len(names - names_before)
    if changes.get("embed", {}).get("sentences") == "separate":  # an edited document's other sentences are known
        assert second.vectors_made <= touched_rows
        assert fresh.vectors_made <= sum(vectors.values()) + len(names)
    else:
        assert second.vectors_made == touched_rows
        assert fresh.vectors_made == sum(vectors.values()) + len(names)
    assert second.vectors_made + second.vectors_reused <= fresh.vectors_made
    assert 0 < second.vectors_made < fresh.vectors_made / 4


@pytest.mark.slow
@pytest.mark.parametrize("sentences", ["pooled", "separate"])
def test_an_updated_index_equals_a_rebuilt_one_and_only_touched_rows_are_embedded(
    forks: tuple[Forks, Forks], tmp_path: Path, sentences: str
) -> None:
    update_equals_rebuild(documents(30, words=110), tmp_path, forks, None, embed={"sentences": sentences})


# The real encoder


def sample(count: int | None = None) -> Documents:
    lines = (ROOT / "sample" / "corpus.jsonl").read_text(encoding="utf-8").splitlines()[:count]
    rows = [json.loads(line) for line in lines]
    return {row["id"]: (row["title"], row["text"]) for row in rows}


REAL: dict[str, Any] = {"embed": {"model": "all-MiniLM-L6-v2"}, "shards": {"document_tokens": 2_000}}


@pytest.mark.slow
@pytest.mark.timeout(1200)
@pytest.mark.parametrize(("sentences", "count"), [("pooled", None), ("separate", None if WHOLE else 12)])
def test_the_real_encoder_makes_the_same_bytes(
    forks: tuple[Forks, Forks], tmp_path: Path, sentences: str, count: int | None
) -> None:
    chosen = REAL | {"embed": {"model": "all-MiniLM-L6-v2", "sentences": sentences}}
    update_equals_rebuild(sample(count), tmp_path, forks, 2, **chosen)
