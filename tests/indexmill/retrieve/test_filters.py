"""Filters: what they mean, what they refuse, and that retrieval keeps to them."""

from __future__ import annotations

import datetime
import operator
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill import BadInput, CorruptBlob
from indexmill.hits import Hit
from indexmill.retrieve import dense
from indexmill.retrieve.columns import products
from indexmill.retrieve.filters import Filter
from indexmill.retrieve.masks import Column, Masks
from indexmill.snapshot import Snapshot
from schemas.tables import DOCUMENTS
from storage.table_blobs import read_table
from tests.deep import examples
from tests.indexmill.small_snapshot import EMBEDDER, SnapshotWriter, Text, writer_of

BIG = 12345678901234567890
WORLD = {
    "p0": (
        Text(
            "a",
            "Ada Venn",
            "Ada Venn paid for the Marrow Bridge.",
            {"year": 2024, "lang": "en", "date": "2024-05-01"},
            "s",
        ),
        Text("b", "Ilse", "The Ilse is a river.\n\nThe bridge.", {"year": "2023", "lang": ["de", "fr"], "ok": True}),
        Text("c", "", "A bridge of lamps.", {"year": 2024.5, "lang": None, "author": {"name": "Ilse", "age": 7}}),
    ),
    "p1": (
        Text("d", "Dee", "Bridge, bridge.", {"year": "2024-01-01", "n": BIG, "title": "Other", "a.b": 1, "ok": False}),
        Text(
            "e", "Paris, Texas", "The town.", {"year": [], "n": 9007199254740993, "a": [{"b": 2}, {"b": "x"}], "é,": 1}
        ),
        Text("f", "Eff", "Ada Venn saw the Ilse.", {"lang": "en", "ok": "true", "year": -3}),
    ),
}


def writer(path: Path) -> SnapshotWriter:
    made = writer_of(path, WORLD)
    made.bm25()
    made.tri_graph(activation_threshold=0.05)
    return made


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("filters") / "store"
    writer(path).publish()
    return path


@pytest.fixture(scope="module")
def shared(store: Path) -> Iterator[Snapshot]:
    with indexmill.open(store) as snapshot:
        yield snapshot


def held(snapshot: Snapshot, where: Any) -> str:
    """The ids of the documents that a filter leaves, each one letter."""
    hits = snapshot.retrieve("bridge", method="dense", k=100, where=where)
    return "".join(sorted({hit.document_ids[0] for hit in hits}))


@pytest.mark.parametrize(
    ("where", "documents"),
    [
        ({}, "abcdef"),
        ({"lang": "en"}, "af"),
        ({"lang": ["en", "de"]}, "abf"),
        ({"lang": ("fr",)}, "b"),
        ({"lang": frozenset({"fr", "en"})}, "abf"),
        ({"year": np.array([2024, -3])}, "af"),
        ({"year": np.array(2024)}, "a"),
        ({"lang": []}, ""),
        ({"lang": {"!=": "en"}}, "bcde"),
        ({"lang": {"!=": ["en", "de"]}}, "cde"),
        ({"lang": {"exists": True}}, "abf"),
        ({"lang": {"exists": False}}, "cde"),
        ({"year": 2024}, "a"),
        ({"year": 2024.0}, "a"),
        ({"year": "2024"}, ""),
        ({"year": 2023}, "b"),
        ({"year": "2023"}, "b"),
        ({"year": {">=": 2024}}, "ac"),
        ({"year": {">": 2024}}, "c"),
        ({"year": {"<": 2024.5}}, "abf"),
        ({"year": {"<=": 2024.5, ">": 0}}, "abc"),
        ({"year": {">=": "2024"}}, "d"),
        ({"year": {"<": 10**400}}, "abcf"),
        ({"year": {"exists": True}}, "abcdf"),
        ({"date": {">=": datetime.date(2024, 5, 1), "<": "2024-06"}}, "a"),
        ({"date": datetime.date(2024, 5, 1)}, "a"),
        ({"ok": True}, "b"),
        ({"ok": False}, "d"),
        ({"ok": 1}, ""),
        ({"ok": "true"}, "f"),
        ({"n": BIG}, "d"),
        ({"n": 9007199254740993}, "e"),
        ({"n": 9007199254740992}, ""),
        ({"n": {">": 9007199254740992.0}}, "de"),
        ({"n": np.int64(9007199254740993)}, "e"),
        ({"author.name": "Ilse"}, "c"),
        ({"author.age": {">": 6}}, "c"),
        ({"author": {"exists": True}}, "c"),
        ({"author": "Ilse"}, ""),
        ({"a.b": [1, 2]}, "de"),
        ({"a.b": "x"}, "e"),
        ({"é,": 1}, "e"),
        ({"title": "Dee"}, "d"),
        ({"metadata.title": "Other"}, "d"),
        ({"metadata.lang": "de"}, "b"),
        ({"title": {"exists": False}}, "c"),
        ({"source": "s"}, "a"),
        ({"source": {"exists": False}}, "bcdef"),
        ({"document_id": ["a", "f", "z"]}, "af"),
        ({"document_id": {">": "c"}, "lang": "en"}, "f"),
        (["lang=en,de"], "abf"),
        ("lang = en , de", "abf"),
        (["lang!=en,de"], "cde"),
        (["lang exists"], "abf"),
        (["lang missing"], "cde"),
        (["year>=2024"], "acd"),
        (["year==2024"], "a"),
        (["year=2024.0"], "a"),
        (['year="2023"'], "b"),
        (['year>="2024"'], "d"),
        (["year<0"], "f"),
        (["year>=2024", "lang=en"], "a"),
        (["ok=true"], "bf"),
        (['ok="true"'], "f"),
        (['title="Paris, Texas",Dee'], "de"),
        (["title!=Dee"], "abcef"),
        (['title=""'], ""),
        (['{"lang": ["en"], "year": {"<": 2000}}'], "f"),
        ([f"n={BIG}"], "d"),
        (["title=O'Brien,\u2028x,%s{}"], ""),
        (["document_id=a' OR 1=1"], ""),
        (["document_id>=b", "document_id<=c"], "bc"),
    ],
)
def test_a_filter_leaves_the_documents_that_it_holds_for(shared: Snapshot, where: Any, documents: str) -> None:
    assert held(shared, where) == documents


@pytest.mark.parametrize(
    ("where", "message"),
    [
        ("year", "not a condition"),
        ("", "not a condition"),
        ("=3", "not a condition"),
        ("year=", "lacks a value"),
        ("year=1,", "lacks a value"),
        ("year>1,2", "one value"),
        ("year>=", "lacks a value"),
        ('title="a\\x"', "JSON"),
        ("{", "JSON"),
        ("{" * 100_000, "JSON"),
        ("\udcff=1", "Unicode"),
        ('title="\\ud800"', "Unicode"),
        ('{"lang": "\\ud800"}', "Unicode"),
        ('{"year": 1e999}', "expected a string"),
        ('{"year": ' + "9" * 5000 + "}", "JSON"),
        ('{"lang": null}', "exists"),
        ("lang is missing", "no document has a field 'lang is'"),
        ("yeer>3", "no document has a field 'yeer'; the fields are document_id, title, source, a.b, author.age"),
        ("nothing missing", "no document has a field 'nothing'"),
        ({"yeer": 3}, "no document has"),
        ({"": 3}, "not a field name"),
        ({3: 3}, "not a field name"),
        ({"year": None}, "exists"),
        ({"year": [None]}, "exists"),
        ({"year": [[1]]}, "expected a string"),
        ({"year": float("nan")}, "expected a string"),
        ({"year": float("inf")}, "expected a string"),
        ({"year": b"2024"}, "expected a string"),
        ({"year": {}}, "empty condition"),
        ({"year": {"~": 3}}, "no operator"),
        ({"year": {3: 3}}, "no operator"),
        ({"year": {">": True}}, "no order"),
        ({"year": {">": [1]}}, "expected a string"),
        ({"year": {"exists": 1}}, "True or False"),
        ({"lang": "\ud800"}, "Unicode"),
        ({"\ud800": 1}, "Unicode"),
        (7, "expected a mapping"),
        ([7], "expected a mapping"),
        (b"year=3", "expected a mapping"),
    ],
)
def test_what_is_no_filter_or_names_no_field_is_refused(shared: Snapshot, where: Any, message: str) -> None:
    with pytest.raises(BadInput, match=message):
        shared.retrieve("bridge", method="bm25", where=where)


@pytest.mark.parametrize("method", ["dense", "bm25", "tri_graph"])
def test_what_is_allowed_comes_in_the_order_and_with_the_scores_that_it_has_without_a_filter(
    store: Path, method: str
) -> None:
    with indexmill.open(store) as snapshot:
        everything = snapshot.retrieve("bridge of Ada Venn", method=method, k=100)
        for where in ({"lang": "en"}, {"document_id": {">": "b"}}, {"year": {"exists": True}}):
            allowed = {hit.id for hit in snapshot.retrieve("the", method="dense", k=100, where=where)}
            for k in (1, 2, 100):
                found = snapshot.retrieve("bridge of Ada Venn", method=method, k=k, where=where)
                assert {hit.id for hit in found} <= allowed
                kept = [hit for hit in everything if hit.id in allowed]
                assert len(found) == min(k, len(kept))  # k results where k exist
                if method != "tri_graph":
                    assert found == kept[:k]


@pytest.mark.parametrize("method", ["dense", "bm25", "tri_graph"])
def test_a_batch_gives_each_question_what_it_gets_alone_also_under_a_filter(store: Path, method: str) -> None:
    questions = ["Who paid for the bridge?", "", "Ada Venn", "Where is the river Ilse?", "zzz"]
    with indexmill.open(store) as snapshot:
        for where in ({"lang": ["en", "de"]}, {"document_id": "c"}, {"lang": []}):
            alone = [snapshot.retrieve(one, method=method, k=3, where=where) for one in questions]
            assert snapshot.retrieve_batch(questions, method=method, k=3, where=where) == alone
            assert snapshot.retrieve_batch(questions[::-1], method=method, k=3, where=where) == alone[::-1]


def test_the_graph_bridges_over_documents_that_take_part_alone(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        everything = snapshot.retrieve("Ada Venn", method="tri_graph", k=100)
        assert bridging(everything) == {"Ada Venn paid for the Marrow Bridge.", "Ada Venn saw the Ilse."}
        found = snapshot.retrieve("Ada Venn", method="tri_graph", k=100, where={"document_id": {"!=": "a"}})
        assert bridging(found) == {"Ada Venn saw the Ilse."}
        assert {hit.document_ids[0] for hit in found} == set("bcdef")


def bridging(hits: list[Hit]) -> set[str]:
    """The sentences by which entities were reached."""
    return {
        one["sentence"] for hit in hits if hit.explanation for one in hit.explanation["entities"] if one["sentence"]
    }


def test_a_filter_for_nothing_asks_for_no_vectors(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with indexmill.open(store) as snapshot:
        monkeypatch.setattr(Snapshot, "encode", lambda *_: pytest.fail("encoded"))
        assert snapshot.retrieve_batch(["bridge", "town"], method="dense", where={"lang": "xx"}) == [[], []]


def test_an_empty_snapshot_has_no_hits_for_any_filter(tmp_path: Path) -> None:
    SnapshotWriter(tmp_path / "none").publish()
    with indexmill.open(tmp_path / "none") as snapshot:
        assert snapshot.retrieve("bridge", method="dense", where={"lang": "en"}) == []


def test_one_mask_is_made_for_equal_filters_however_they_are_written_and_truths_are_no_numbers(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        masks = Masks(snapshot)
        mask = masks.mask(Filter.of({"year": 2024}))
        assert masks.mask(Filter.of({"year": {"=": [2024.0]}})) is mask
        assert not mask.flags.writeable
        assert Filter.of({"ok": True}) != Filter.of({"ok": 1})
        assert mask.tolist() == [True, False, False, False, False, False, False]


def test_threads_share_a_snapshots_filters(store: Path) -> None:
    wheres = [{"lang": "en"}, {"year": {">": 0}}, {"ok": True}, {"document_id": "c"}] * 10
    with indexmill.open(store) as snapshot:
        expected = [snapshot.retrieve("bridge", method="bm25", where=where) for where in wheres]
    with indexmill.open(store) as snapshot, ThreadPoolExecutor(8) as pool:
        found = pool.map(lambda where: snapshot.retrieve("bridge", method="bm25", where=where), wheres)
        assert list(found) == expected


def test_the_fields_that_an_error_names_cannot_command_the_terminal(tmp_path: Path) -> None:
    made = SnapshotWriter(tmp_path / "store")
    made.shard("p", [Text("a", "A", "one", {"\x1b[2J": 1, **{f"field {n:02}": n for n in range(99)}})])
    made.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(BadInput) as refused:
        snapshot.retrieve("one", method="dense", where="x=1")
    assert str(refused.value).isprintable()
    assert str(refused.value).endswith("field 27, field 28, ...")


def test_a_passage_of_an_unknown_document_is_damage(tmp_path: Path) -> None:
    made = SnapshotWriter(tmp_path / "store")
    made.shard("p", WORLD["p0"])
    whole = made.artifacts.pop(0)
    made.table(whole.name, read_table(made.store, whole.digest).slice(1), DOCUMENTS)
    made.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="unknown documents"):
        snapshot.retrieve("x", method="dense", where={"lang": "en"})


def test_metadata_that_are_no_json_are_named_by_their_table(tmp_path: Path) -> None:
    made = SnapshotWriter(tmp_path / "store")
    made.shard("p", WORLD["p0"])
    whole = made.artifacts.pop(0)
    table = read_table(made.store, whole.digest)
    metadata = pa.array(['{"lang":'] * len(table))
    made.table(whole.name, table.set_column(table.column_names.index("metadata"), "metadata", metadata), DOCUMENTS)
    made.publish()
    with indexmill.open(tmp_path / "store") as snapshot, pytest.raises(CorruptBlob, match="'documents/p'"):
        snapshot.retrieve("x", method="dense", where={"lang": 1})


values = st.one_of(
    st.booleans(),
    st.integers(-3, 3),
    st.sampled_from([-1.5, 0.0, 2.0, 2.5, "", "a", "b", "2", "-1.5", "é", 2**63, 2**53 + 1]),
)


@examples(30, deep=150)
@given(
    cells=st.lists(st.one_of(st.none(), values, st.lists(values, max_size=3)), min_size=1),
    wanted=values,
    data=st.data(),
)
def test_comparisons_are_those_of_python(cells: list[Any], wanted: Any, data: st.DataObject) -> None:
    sign = data.draw(
        st.sampled_from(["=", "!=", "<", "<=", ">", ">="] if not isinstance(wanted, bool) else ["=", "!="])
    )
    leaves = [cell if isinstance(cell, list) else [] if cell is None else [cell] for cell in cells]
    pairs = [(row, value) for row, of_row in enumerate(leaves) for value in of_row]
    column = Column(len(cells), [row for row, _ in pairs], [value for _, value in pairs])
    (condition,) = Filter.of({"field": {sign: wanted}}).conditions
    expected = [any(compares(value, sign.replace("!", ""), wanted) for value in of_row) for of_row in leaves]
    assert column.holds(condition).tolist() == [one != (sign == "!=") for one in expected]


@pytest.mark.parametrize(
    ("condition", "expected"), [("field<5", [False, True, False]), ("field<b", [True, True, True])]
)
def test_a_text_that_is_written_as_a_number_is_compared_as_one_with_a_word_that_is(
    condition: str, expected: list[bool]
) -> None:
    column = Column(3, [0, 1, 2], ["10", "2", "a"])  # as texts, "10" comes before "5"
    (parsed,) = Filter.of([condition]).conditions
    assert column.holds(parsed).tolist() == expected


def compares(cell: Any, sign: str, wanted: Any) -> bool:
    """What the documentation says of one value."""
    compare = {"=": operator.eq, "<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}[sign]
    if isinstance(wanted, bool) or isinstance(cell, bool):
        return isinstance(wanted, bool) and isinstance(cell, bool) and cell == wanted
    if isinstance(wanted, str):
        return isinstance(cell, str) and bool(compare(cell, wanted))
    if isinstance(cell, str):
        if cell not in ("2", "-1.5"):
            return False
        cell = float(cell)
    return bool(compare(cell, wanted))


@examples(12, deep=60)
@given(
    lengths=st.lists(st.integers(0, 40), min_size=1, max_size=4),
    questions=st.integers(1, 5),
    k=st.integers(1, 50),
    share=st.sampled_from([0.0, 0.1, 0.5, 0.9, 1.0]),
    seed=st.integers(0, 5),
)
def test_the_nearest_of_some_rows_are_those_of_a_full_sort(
    lengths: list[int], questions: int, k: int, share: float, seed: int
) -> None:
    chance = np.random.default_rng(seed)
    shards = [chance.choice([-0.5, 0.0, 0.5], (length, 4)).astype(np.float32) for length in lengths]
    asked = EMBEDDER.encode(["a b", "c d", "e", "f g h", "i"])[:questions, :4]
    allowed = chance.random(sum(lengths)) < share
    (rows,) = allowed.nonzero()
    for question, (found, scores) in zip(asked, dense.nearest(shards, asked, k, allowed), strict=True):
        values = products(shards, question[None], rows)
        order = np.lexsort((rows, -values))[:k]
        assert found.tolist() == rows[order].tolist()
        assert scores.tobytes() == values[order].tobytes()
