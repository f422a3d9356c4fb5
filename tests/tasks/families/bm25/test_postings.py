"""What a shard's postings hold."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from indexmill.retrieve.term_index import FIELDS
from indexmill.text.terms import Analyser, term_keys
from tasks.families.bm25.postings import counts, merged, postings


def test_the_arrays_of_two_passages() -> None:
    made = postings(["Bridge", ""], ["The bridges, the bridge.", "A lamp"], title_weight=3)
    names = {int(term_keys([Analyser().terms(word)[0]])[0]): word for word in ("the", "bridge", "a", "lamp")}
    found = {}
    for i, key in enumerate(made["keys"].tolist()):
        part = slice(made["indptr"][i], made["indptr"][i + 1])
        found[names[key]] = list(zip(made["passages"][part].tolist(), made["counts"][part].tolist(), strict=True))
    assert found == {"the": [(0, 2)], "bridge": [(0, 5)], "a": [(1, 1)], "lamp": [(1, 1)]}
    assert made["lengths"].tolist() == [7, 2]
    dtypes = {"keys": "<u8", "indptr": "|u1", "passages": "|u1", "counts": "|u1", "lengths": "|u1"}
    assert {name: array.dtype.str for name, array in made.items()} == {
        field + name: dtype for field in FIELDS for name, dtype in dtypes.items()
    }
    titles = {name.removeprefix("titles."): array.tolist() for name, array in made.items() if "titles" in name}
    assert [names[key] for key in titles.pop("keys")] == ["bridge"]
    assert titles == {"indptr": [0, 1], "passages": [0], "counts": [1], "lengths": [1, 0]}
    assert counts(made, made) == {"passages": 4, "words": 18, "postings": 8}


def test_a_passage_and_its_title_have_the_stems_of_its_language() -> None:
    german, english = Analyser(["german"]), Analyser()
    made = postings(["Brücken", "Brücken"], ["Zeitungen", "Zeitungen"], 1, ["de", "en"])
    keys = {int(key) for key in made["keys"]}
    expected = [analyser.terms(word)[0] for analyser in (german, english) for word in ("Brücken", "Zeitungen")]
    assert keys == {int(key) for key in term_keys(expected)}
    assert len(keys) == 4


def test_a_shard_without_passages_has_no_postings() -> None:
    made = postings([], [], title_weight=1)
    assert made["indptr"].tolist() == [0]
    assert counts(made) == {"passages": 0, "words": 0, "postings": 0}


@given(
    texts=st.lists(st.text(alphabet="ab é藤.", max_size=30), max_size=8),
    titles=st.lists(st.sampled_from(["", "a", "b é"])),
)
def test_every_occurrence_is_counted_once(texts: list[str], titles: list[str]) -> None:
    titles = (titles + [""] * len(texts))[: len(texts)]
    made = postings(titles, texts, title_weight=2)
    ends = made["indptr"].astype(np.int64)
    keys = made["keys"].repeat(np.diff(ends))
    found = dict(zip(zip(keys.tolist(), made["passages"].tolist(), strict=True), made["counts"].tolist(), strict=True))
    assert len(found) == len(keys)
    expected: dict[tuple[int, int], int] = {}
    for row, (title, text) in enumerate(zip(titles, texts, strict=True)):
        for key in term_keys(Analyser().terms(title) * 2 + Analyser().terms(text)).tolist():
            expected[key, row] = expected.get((key, row), 0) + 1
    assert found == expected
    assert list(found) == sorted(found)
    assert made["lengths"].tolist() == [
        sum(n for (_, row), n in expected.items() if row == i) for i in range(len(texts))
    ]


def test_what_is_merged_is_what_is_made_at_once() -> None:
    titles = ["a", "a", "b", "c", "c"]
    texts = ["lamp river", "river river", "tower", "lamp tower stone", ""]
    whole = postings(titles, texts, 3)
    parts = []
    for rows in ([1, 3], [0, 2, 4]):
        made = postings([titles[row] for row in rows] + ["gone"], [texts[row] for row in rows] + ["lamp gone"], 3)
        parts.append((made, np.array([*rows, -1])))
    found = merged(parts, len(texts))
    assert {name: (array.dtype, array.tolist()) for name, array in found.items()} == {
        name: (array.dtype, array.tolist()) for name, array in whole.items()
    }
