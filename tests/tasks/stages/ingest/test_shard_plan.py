"""Plans: the same documents and shards whatever the order of the rows, in bounded memory."""

from __future__ import annotations

import random
import tracemalloc
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import StoreError
from schemas.corpus import CorpusSettings
from schemas.tables import DOCUMENTS, QUARANTINE
from tasks.core.shards import id_hash
from tasks.stages.ingest import shard_plan
from tasks.stages.ingest.shard_plan import (
    digest_of_documents,
    documents_of,
    drop_before,
    plan,
    quarantine_of,
)
from tasks.stages.ingest.source_files import find
from tasks.stages.ingest.spill import scan, without
from tests.deep import examples
from tests.tasks.stages.ingest.spilled import Record, digest, documents, ingest, records, scans, write_lines


def test_every_document_is_in_the_shard_of_its_hash(tmp_path: Path) -> None:
    planned = ingest(tmp_path / "spill", write_lines(tmp_path / "a.jsonl", records(200)))
    assert len(planned.shards) > 10
    assert [shard.label for shard in planned.shards] == sorted(shard.label for shard in planned.shards)
    seen: list[str] = []
    for shard in planned.shards:
        table = documents_of(shard, tmp_path / "spill")
        assert table.schema == DOCUMENTS
        ids = table.column("document_id").to_pylist()
        assert ids == sorted(ids, key=id_hash)
        assert len(ids) == shard.documents
        assert shard.documents == 1 or shard.tokens <= 40
        for name in ids:
            assert "".join(f"{byte:08b}" for byte in id_hash(name)).startswith(shard.label[1:])
        assert shard.digest == digest(table.to_pylist())
        seen += ids
    assert sorted(seen) == sorted(f"d{n}" for n in range(200))
    assert planned.documents == 200
    assert planned.tokens == sum(shard.tokens for shard in planned.shards)


ROWS = st.lists(
    st.fixed_dictionaries({"id": st.sampled_from("abcdef"), "text": st.sampled_from(["x", "y", "z", "w" * 200])}),
    max_size=25,
)


@examples(17, deep=40)
@given(ROWS, st.integers(1, 4), st.randoms())
def test_documents_are_a_function_of_the_set_of_rows(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Record], files: int, shuffle: random.Random
) -> None:
    folder = tmp_path_factory.mktemp("set")
    write_lines(folder / "one/a.jsonl", rows)
    shuffled = list(rows)
    shuffle.shuffle(shuffled)
    for number in range(files):
        write_lines(folder / f"two/{number}.jsonl", shuffled[number::files])
    one, two = ingest(folder / "spill1", folder / "one"), ingest(folder / "spill2", folder / "two")
    for field in ("shards", "fingerprint", "repeats", "refused"):
        assert getattr(one, field) == getattr(two, field)
    assert documents(one, folder / "spill1") == documents(two, folder / "spill2")
    assert one.documents == len({row["id"] for row in rows})
    assert one.documents + one.repeats + one.refused.get("duplicate-id", 0) == len(rows)
    kept = {row["document_id"]: row["text"] for row in documents(one, folder / "spill1")}
    lines = [(row["id"], row["text"]) for row in rows]
    assert set(kept.items()) <= set(lines)
    for row in quarantine_of(one, folder / "spill1").to_pylist():
        name, text = lines[row["line"] - 1]
        assert name == row["document_id"]
        assert text != kept[name]
        assert f"a.jsonl, line {lines.index((name, kept[name])) + 1} is kept," in row["detail"]


def test_the_smallest_content_hash_is_kept_and_the_other_refused(tmp_path: Path) -> None:
    rows = [{"id": "a", "text": text} for text in ("one", "two", "three", "two")]
    planned = ingest(tmp_path / "spill", write_lines(tmp_path / "a.jsonl", rows))
    (kept,) = documents(planned, tmp_path / "spill")
    alone = [
        documents(ingest(tmp_path / f"spill{n}", write_lines(tmp_path / f"{n}.jsonl", [row])), tmp_path / f"spill{n}")
        for n, row in enumerate(rows)
    ]
    assert kept["content_hash"] == min(found["content_hash"] for (found,) in alone)
    table = quarantine_of(planned, tmp_path / "spill")
    assert table.schema == QUARANTINE
    refused = table.to_pylist()
    assert len(refused) + planned.repeats == 3
    assert {(row["reason"], row["document_id"], row["file"]) for row in refused} == {("duplicate-id", "a", "a.jsonl")}
    line = [found["content_hash"] for (found,) in alone].index(kept["content_hash"]) + 1
    assert all(f"a.jsonl, line {line} is kept," in row["detail"] for row in refused)


def test_an_empty_corpus_and_one_of_refusals_have_no_shards(tmp_path: Path) -> None:
    planned = ingest(tmp_path / "spill", write_lines(tmp_path / "a.jsonl", [{"id": 1}]))
    assert (planned.shards, planned.documents, planned.tokens) == ((), 0, 0)
    assert quarantine_of(planned, tmp_path / "spill").num_rows == 1
    assert plan([], tmp_path / "spill").fingerprint == planned.fingerprint == digest_of_documents([], [])


@pytest.mark.slow
def test_the_documents_before_a_shard_can_be_dropped_and_the_others_stay(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    planned = ingest(folder, write_lines(tmp_path / "a.jsonl", records(300)))
    whole = {shard.label: documents_of(shard, folder) for shard in planned.shards}
    sizes = []
    for shard in planned.shards:
        drop_before(shard, folder)
        sizes.append(sum(file.stat().st_size for file in folder.glob("*.documents.*")))
        assert documents_of(shard, folder).equals(whole[shard.label])
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[-1] < sizes[0] / 8
    with pytest.raises(StoreError, match="scan and plan again"):
        documents_of(planned.shards[0], folder)


def test_a_shard_knows_the_fingerprint_of_the_corpus_up_to_it(tmp_path: Path) -> None:
    folder = tmp_path / "spill"
    planned = ingest(folder, write_lines(tmp_path / "a.jsonl", records(60)))
    rows: list[Record] = []
    for shard in planned.shards:
        rows += documents_of(shard, folder).to_pylist()
        assert shard.up_to == digest(rows)
    assert planned.shards[-1].up_to == planned.fingerprint


def test_a_spill_that_is_not_the_planned_one_is_not_used(tmp_path: Path) -> None:
    path = write_lines(tmp_path / "a.jsonl", records(50))
    planned = ingest(tmp_path / "spill", path)
    for changed in ([{**record, "text": "edited"} for record in records(50)], records(3)):
        ingest(tmp_path / "spill", write_lines(path, changed))
        with pytest.raises(StoreError, match="scan and plan again"):
            documents(planned, tmp_path / "spill")
    for file in (tmp_path / "spill").glob("scan-*.documents.*.arrow"):
        file.write_bytes(file.read_bytes()[:100])
    with pytest.raises(StoreError, match="scan and plan again"):
        documents(planned, tmp_path / "spill")


@pytest.mark.slow
def test_the_memory_of_a_plan_is_a_hundred_bytes_a_document(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    count = 40_000
    rows = [{"id": f"section/{n % (count * 3 // 4)}", "text": "t"} for n in range(count)]
    results = scans(tmp_path, write_lines(tmp_path / "a.jsonl", rows))
    monkeypatch.setattr(shard_plan, "_GATHERED", 1000)
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    try:
        planned = plan(results, tmp_path, 2000)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert planned.repeats == count // 4
    assert peak < 150 * count + (1 << 20)
    assert pa.total_allocated_bytes() - before < 1 << 20


@examples(5, deep=10)
@given(rows=ROWS, poisonous=st.sets(st.sampled_from(["x", "y", "z"])))
def test_poison_is_left_out_as_if_it_had_never_been_there(
    tmp_path_factory: pytest.TempPathFactory, rows: list[Record], poisonous: set[str]
) -> None:
    folder = tmp_path_factory.mktemp("poison")
    others = write_lines(folder / "without.jsonl", [row for row in rows if row["text"] not in poisonous])
    without = ingest(folder / "without", others)
    results = scans(folder / "whole", write_lines(folder / "whole.jsonl", rows))
    hashes = {row["content_hash"] for text in poisonous for row in _with_text(text, folder)}
    planned = plan(results, folder / "whole", 40, poison=dict.fromkeys(hashes, ("kills-worker", "split: SIGKILL")))
    for field in ("shards", "fingerprint", "repeats"):
        assert getattr(planned, field) == getattr(without, field)
    bad = [number for number, row in enumerate(rows, 1) if row["text"] in poisonous]
    refused = quarantine_of(planned, folder / "whole").to_pylist()
    assert [row["line"] for row in refused if row["reason"] == "kills-worker"] == bad
    assert planned.refused.get("kills-worker", 0) == len(bad)


def _with_text(text: str, folder: Path) -> list[Record]:
    """The document that a text makes, whatever its id: content hashes do not hold the id."""
    planned = ingest(folder / "one", write_lines(folder / "one.jsonl", [{"id": "a", "text": text}]))
    return documents(planned, folder / "one")


def test_a_forgotten_document_is_as_if_it_had_never_been_there(tmp_path: Path) -> None:
    forgotten = {"d3", "d11", "d12", "absent"}
    rows = records(60)
    repeated = [dict(rows[3]), {"id": "d11", "text": "another content"}]
    results = scans(tmp_path / "all", write_lines(tmp_path / "all.jsonl", [*rows, *repeated]))
    one = plan(results, tmp_path / "all", 60, forgotten=list(map(id_hash, forgotten)))
    kept = write_lines(tmp_path / "kept.jsonl", [row for row in rows if row["id"] not in forgotten])
    other = ingest(tmp_path / "kept", kept, 60)
    assert (one.forgotten, other.forgotten) == (3, 0)
    assert (one.shards, one.fingerprint, one.documents) == (other.shards, other.fingerprint, other.documents)
    assert len(one.shards) > 3
    assert quarantine_of(one, tmp_path / "all").num_rows == 0
    assert documents(one, tmp_path / "all") == documents(other, tmp_path / "kept")


def test_a_file_that_is_taken_out_of_a_scan_holds_no_document_to_forget(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write_lines(tmp_path / "corpus" / f"{name}.jsonl", [{"id": name, "title": "T", "text": "of it"}])
    chosen = CorpusSettings(paths=(str(tmp_path / "corpus"),))
    (tmp_path / "spill").mkdir()
    result = scan(find(chosen).files, chosen, tmp_path / "spill")
    forgotten = [id_hash("a"), id_hash("b")]
    assert plan([result], tmp_path / "spill", forgotten=forgotten).with_forgotten == ("a.jsonl", "b.jsonl")
    left = without(result, ["b.jsonl"], tmp_path / "spill")
    planned = plan([left], tmp_path / "spill", forgotten=forgotten)
    assert (planned.with_forgotten, planned.forgotten) == (("a.jsonl",), 1)


def test_a_document_that_is_forgotten_is_not_refused_as_poison(tmp_path: Path) -> None:
    results = scans(tmp_path, write_lines(tmp_path / "all.jsonl", records(3)))
    everything = documents(plan(results, tmp_path, 60), tmp_path)
    killing = {row["content_hash"]: ("kills-worker", "split: SIGKILL") for row in everything}
    planned = plan(results, tmp_path, 60, poison=killing, forgotten=[id_hash("d1")])
    refused = quarantine_of(planned, tmp_path).to_pylist()
    assert sorted(row["document_id"] for row in refused) == ["d0", "d2"]
    assert planned.refused == {"kills-worker": 2}
