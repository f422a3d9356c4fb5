"""Which answers stand: the least set in which all that an answer is about is accounted for."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

from hypothesis import given
from hypothesis import strategies as st

from indexmill.store.layout import ledger_name
from storage import ledger
from storage.document_traces import Traces
from storage.folder import FolderStore, init_folder
from storage.provenance import AnswerProvenance, hashed
from storage.tombstones import document_digest
from tests.deep import examples
from tests.storage.quick import quick_folder
from tests.storage.test_ledger import entry, key

IDS = [f"id {number}" for number in range(12)]
RECORDS = st.lists(st.tuples(st.sets(st.sampled_from(IDS), min_size=1, max_size=3), st.sampled_from([*IDS, ""])))
SOME = st.sets(st.sampled_from(IDS))


@contextmanager
def kept(records: Sequence[tuple[set[str], str]]) -> Iterator[FolderStore]:
    with quick_folder() as folder:
        store = init_folder(folder / "store")
        for number, (about, makes) in enumerate(records):
            path = store.root / ledger_name(key(number))
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(entry(number, about=tuple(sorted(about)), makes=makes).to_bytes())
        yield store


@given(records=RECORDS, accounted=SOME, forgotten=SOME)
@examples(25, deep=150)
def test_the_standing_answers_are_those_of_the_definition(
    records: list[tuple[set[str], str]], accounted: set[str], forgotten: set[str]
) -> None:
    known = accounted - forgotten
    standing: set[int] = set()
    while True:
        more = {number for number, (about, _) in enumerate(records) if about <= known}
        known = (known | {records[number][1] for number in more}) - forgotten
        if more == standing:
            break
        standing = more
    with kept(records) as store:
        names = list(AnswerProvenance(store, Traces([])).unaccounted(lambda: hashed(accounted), hashed(forgotten)))
        assert sorted(names) == sorted(ledger_name(key(n)) for n in range(len(records)) if n not in standing)
        for name in names:
            store.delete(name)
        again = AnswerProvenance(store, Traces([])).unaccounted(lambda: hashed(accounted), hashed(forgotten))
        assert list(again) == []
        assert sum(1 for _ in ledger.scan(store)) == len(standing)


@given(records=RECORDS, start=SOME, accounted=SOME)
@examples(51, deep=150)
def test_what_was_made_of_some_ids_is_found_through_all_layers(
    records: list[tuple[set[str], str]], start: set[str], accounted: set[str]
) -> None:
    reached, made = set(start), set[str]()
    for _ in records:
        for about, makes in records:
            if about & reached and makes not in accounted and makes:
                reached.add(makes)
                made.add(makes)
    with kept(records) as store:
        found = AnswerProvenance(store, Traces([])).made_of(hashed(start), lambda: hashed(accounted))
        assert found == {document_digest(one) for one in made}
