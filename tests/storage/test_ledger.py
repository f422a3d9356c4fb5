"""The ledger: one durable record for each key, whoever writes it and whatever kills the writer."""

from __future__ import annotations

import signal
import sys
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.errors import CorruptBlob, UnsupportedFormat
from indexmill.models.llm import Request, key_of
from indexmill.store.canonical import canonical_json, digest_of, strict_json
from indexmill.store.layout import ledger_name, refusal_name
from storage import faults, ledger, refusals
from storage.folder import FolderStore, init_folder
from storage.ledger import LedgerEntry
from storage.refusals import RefusedPrompt
from tests.deep import examples
from tests.storage import children

SCHEMA = {"type": "object", "properties": {"summary": {"type": "string"}}, "required": ["summary"]}


def key(number: int) -> str:
    return digest_of(str(number).encode())


def entry(number: int = 1, **changes: Any) -> LedgerEntry:
    given: dict[str, Any] = {
        "key": key(number),
        "task": "summary",
        "model": "gpt/4:mini",
        "prompt_version": "1",
        "value": {"summary": f"naïve \u2028 summary {number}", "scores": [1, 1.5, None]},
        "input_tokens": 100,
        "output_tokens": 10,
        "about": ("a", "b"),
        "makes": f"node {number}",
        "run_id": "run-1",
        "created": children.CREATED,
    }
    return LedgerEntry(**(given | changes))


def test_the_first_record_of_a_key_stands(store: FolderStore) -> None:
    first, second = entry(), entry(value={"summary": "another"})
    assert ledger.find(store, key(1)) is None
    assert ledger.record(store, first) == first
    assert ledger.record(store, second) == first
    assert ledger.find(store, key(1)) == first
    assert store.list("ledger/") == [f"ledger/{key(1)[:2]}/{key(1)}"]


def test_a_record_that_cannot_be_used_is_replaced(store: FolderStore) -> None:
    first, second = entry(), entry(value={"summary": "another"})
    ledger.record(store, first)
    assert ledger.record(store, second, stands=lambda found: found.value != first.value) == second
    assert ledger.find(store, key(1)) == second


@given(at=st.integers(min_value=0), flip=st.integers(min_value=1, max_value=255))
@examples(60, deep=300)
def test_no_changed_byte_goes_unnoticed(at: int, flip: int) -> None:
    data = bytearray(entry().to_bytes())
    data[at % (len(data) - 1)] ^= flip  # but for the newline at the end
    with pytest.raises(CorruptBlob):
        LedgerEntry.from_bytes(bytes(data), "here")


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"null",
        b"[1]",
        b"\xff\xfe",
        entry().to_bytes()[:-20],
        entry().to_bytes().replace(b'"task":"summary"', b'"task":"other"'),
        entry(2).to_bytes(),
        canonical_json({"digest": digest_of(canonical_json({"format": 1})), "format": 1}),
        b"[" * 100_000,
    ],
)
def test_a_damaged_record_counts_as_none_and_is_replaced(store: FolderStore, data: bytes) -> None:
    store.create(ledger_name(key(1)), data)
    assert ledger.find(store, key(1)) is None
    assert [found for _, _, found in ledger.scan(store)] == [None]
    assert ledger.record(store, entry()) == entry()
    assert ledger.find(store, key(1)) == entry()


def test_a_record_of_a_newer_indexmill_is_neither_used_nor_replaced(store: FolderStore) -> None:
    content = {**strict_json(entry().to_bytes()), "format": 2}
    del content["digest"]
    data = canonical_json({**content, "digest": digest_of(canonical_json(content))})
    store.create(ledger_name(key(1)), data)
    for look in (lambda: ledger.find(store, key(1)), lambda: ledger.record(store, entry())):
        with pytest.raises(UnsupportedFormat, match="install a newer one"):
            look()
    assert store.get(ledger_name(key(1))) == data


def test_the_key_hashes_all_that_shapes_an_answer_and_nothing_else() -> None:
    request = Request("summary", "Summarise.", "1", "text", SCHEMA, 100, about=("a",), makes="n")
    whole = key_of({"model": "m"}, request)
    assert whole == key_of({"model": "m"}, Request("summary", "Summarise.", "1", "text", dict(SCHEMA), 100))
    others = [
        Request("entities", "Summarise.", "1", "text", SCHEMA, 100),
        Request("summary", "Summarise!", "1", "text", SCHEMA, 100),
        Request("summary", "Summarise.", "2", "text", SCHEMA, 100),
        Request("summary", "Summarise.", "1", "texts", SCHEMA, 100),
        Request("summary", "Summarise.", "1", "text", {**SCHEMA, "required": []}, 100),
        Request("summary", "Summarise.", "1", "text", SCHEMA, 101),
    ]
    keys = {whole, key_of({"model": "n"}, request), *(key_of({"model": "m"}, other) for other in others)}
    assert len(keys) == 8


def write_many(root: Path, word: str, barrier: Any) -> None:
    """Record fifty keys, each with this writer's word; ends with 1 where another answer than the first is returned."""
    store = FolderStore(root)
    barrier.wait(30)
    returned = [ledger.record(store, entry(number, value={"summary": word})) for number in range(50)]
    stands = [ledger.find(store, key(number)) for number in range(50)]
    sys.exit(returned != stands)


def test_many_writers_use_one_answer(store: FolderStore) -> None:
    barrier = children.context.Barrier(4)
    assert children.run_all([(write_many, store.root, word, barrier) for word in "abcd"]) == [0] * 4
    assert len(store.list("ledger/")) == 50
    assert store.sweep(0.0) == 0


def record_with_fault(root: Path, at: int, mode: str) -> None:
    faults.arm(at, mode)
    ledger.record(FolderStore(root), entry())


def test_a_killed_writer_leaves_a_whole_record_or_none(quick: Path) -> None:
    probe = init_folder(quick / "probe")
    faults.arm(0)
    ledger.record(probe, entry())
    total = faults.crossings()
    assert total > 5
    left = set()
    cases = [(at, "kill") for at in range(1, total + 1)] + [(1, "torn")]
    stores = [init_folder(quick / f"{at}-{mode}") for at, mode in cases]
    ends = children.run_all([(record_with_fault, store.root, *case) for store, case in zip(stores, cases, strict=True)])
    assert set(ends) == {-signal.SIGKILL}
    for store in stores:
        left.add(len(store.list("ledger/")))
        assert ledger.find(store, key(1)) in (None, entry())
        assert ledger.record(store, entry()) == entry()
    assert left == {0, 1}


def test_counts_are_by_model_and_task(store: FolderStore) -> None:
    for number in range(3):
        ledger.record(store, entry(number))
    ledger.record(store, entry(3, task="entities", output_tokens=7))
    store.create(ledger_name(key(4)), b"damaged")
    found, damaged, lost = ledger.stats(store)
    assert (damaged, lost) == (1, 7)
    assert list(found) == [("gpt/4:mini", "entities"), ("gpt/4:mini", "summary")]
    assert dict(found["gpt/4:mini", "summary"]) == {
        "answers": 3,
        "input_tokens": 300,
        "output_tokens": 30,
        "bytes": sum(len(entry(number).to_bytes()) for number in range(3)),
    }
    assert [found.key for _, _, found in ledger.scan(store) if found] == sorted(key(number) for number in range(4))


class Watched(FolderStore):
    """A store that knows how many names it was asked for at once."""

    most = 0

    def list(self, prefix: str) -> list[str]:
        names = super().list(prefix)
        self.most = max(self.most, len(names))
        return names


@pytest.mark.slow
def test_counting_holds_a_part_of_the_ledger_at_a_time(store: FolderStore) -> None:
    for number in range(1000):
        path = store.root / ledger_name(key(number))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(entry(number).to_bytes())
    watched, passed = Watched(store.root), []
    found, _, _ = ledger.stats(watched, lambda: passed.append(watched.most))
    assert found["gpt/4:mini", "summary"]["answers"] == 1000
    assert len(passed) == 256
    assert 0 < watched.most < 40


def refused(number: int = 1, reason: str = "not-json") -> RefusedPrompt:
    plain = entry(number)
    shared = {name: getattr(plain, name) for name in ("task", "model", "prompt_version", "about", "makes", "run_id")}
    return RefusedPrompt(key=plain.key, reason=reason, created=plain.created, **shared)


def test_a_refusal_is_kept_replaced_and_removed(store: FolderStore) -> None:
    refusals.record(store, refused())
    refusals.record(store, refused())
    assert refusals.find(store, key(1)) == refused()
    refusals.record(store, refused(reason="declined"))
    assert refusals.find(store, key(1)) == refused(reason="declined")
    store.create(refusal_name(key(2)), b"{}")
    assert refusals.find(store, key(2)) is None
    assert dict(refusals.scan(store)) == {
        refusal_name(key(1)): refused(reason="declined"),
        refusal_name(key(2)): None,
    }
    refusals.remove(store, key(1))
    refusals.remove(store, key(1))
    assert refusals.find(store, key(1)) is None


@pytest.mark.parametrize(
    "text",
    [
        '{"a": 1, "a": 2}',
        '{"a": NaN}',
        '{"a": -Infinity}',
        '{"a": 1e999}',
        '{"a": ' + "9" * 5000 + "}",
        '{"a": "\\ud800"}',
        '{"\\udfff": 1}',
        '{"a": 1',
        "",
        '{"a": 1} {"b": 2}',
        "[" * 100_000,
        "[" * 990 + "]" * 990,
    ],
)
def test_what_is_no_clean_json_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        strict_json(text)


TEXTS = st.text(st.characters(exclude_categories=["Cs"]))
PLAIN = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | TEXTS


@given(st.recursive(PLAIN, lambda inner: st.lists(inner) | st.dictionaries(TEXTS, inner), max_leaves=8))
@examples(20, deep=100)
def test_clean_json_is_read_as_it_is(value: Any) -> None:
    assert canonical_json(strict_json(canonical_json(value))) == canonical_json(value)
