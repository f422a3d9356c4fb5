"""The ledger handed over and taken in: whole, trusted as far as it can be checked, never over what is there."""

from __future__ import annotations

import gzip
import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from flows.ledger import export_ledger, import_ledger
from indexmill.command import main
from indexmill.errors import BadInput, LeaseLost, StoreNotWritable
from indexmill.store.canonical import canonical_json, digest_of, strict_json
from indexmill.store.layout import ledger_name, refusal_name
from storage import exports, gc, ledger, runs, tombstones
from storage.folder import FolderStore, init_folder, open_folder
from storage.forget import ForgetRecord, Search, dry_run
from storage.lease import acquire
from storage.ledger import LONGEST, LedgerEntry
from tasks.core.report import Silent
from tests.corpora import documents, write_corpus
from tests.flows.children import build, settings
from tests.flows.commands import Run
from tests.flows.forgetting import answer, collect, forget_here, passages_of, refuse
from tests.storage import children


def keys(store: FolderStore) -> list[str]:
    return sorted(name.rpartition("/")[2] for name in store.list("ledger/"))


def signed(**changes: Any) -> bytes:
    """A line with a good digest over whatever it holds."""
    content = strict_json(
        LedgerEntry(
            key=digest_of(b"key"),
            task="summary",
            model="model",
            prompt_version="1",
            value={"summary": "words"},
            input_tokens=1,
            output_tokens=1,
            run_id="run-1",
            created="2026-01-31T02:00:00Z",
        ).to_bytes()
    )
    del content["digest"]
    content |= changes
    return canonical_json({**content, "digest": digest_of(canonical_json(content))})


@pytest.mark.slow
@pytest.mark.parametrize("name", ["answers.jsonl", "answers.jsonl.gz"])
def test_what_was_handed_over_is_taken_in(store: FolderStore, quick: Path, name: str) -> None:
    made = [answer(store, f"prompt {number}", ["a"], f"node {number}", "naïve \u2028") for number in range(300)]
    store.create(ledger_name(digest_of(b"damaged")), b"{")
    done = export_ledger(store, quick / name, progress=Silent())
    assert (done.answers, done.damaged) == (300, 1)
    assert export_ledger(store, quick / f"again-{name}", progress=Silent()).bytes == done.bytes
    assert (quick / name).read_bytes() == (quick / f"again-{name}").read_bytes()
    data = (quick / name).read_bytes()
    lines = (gzip.decompress(data) if name.endswith(".gz") else data).splitlines(keepends=True)
    assert [json.loads(line)["key"] for line in lines] == sorted(one.key for one in made)
    other = init_folder(quick / "other")
    taken = import_ledger(other, quick / name, progress=Silent())
    assert (taken.lines, taken.added, taken.there, taken.quarantined) == (300, 300, 0, 0)
    assert all(ledger.find(other, one.key) == one for one in made)
    again = import_ledger(other, quick / name, progress=Silent())
    assert (again.added, again.there) == (0, 300)
    assert [run.state for run in runs.list_runs(other)] == ["done", "done"]


def test_an_answer_that_is_there_stands_and_a_damaged_one_is_replaced(store: FolderStore, quick: Path) -> None:
    ours = answer(store, "prompt", ["a"], "node", "ours")
    lost = answer(store, "lost", ["a"], "lost", "words")
    export_ledger(store, quick / "answers.jsonl", progress=Silent())
    theirs = ours.model_copy(update={"value": {"summary": "theirs"}})
    (quick / "theirs.jsonl").write_bytes(theirs.to_bytes() + lost.to_bytes())
    store.replace(ledger_name(lost.key), b"damaged")
    done = import_ledger(store, quick / "theirs.jsonl", progress=Silent())
    assert (done.added, done.there) == (1, 1)
    assert ledger.find(store, ours.key) == ours
    assert ledger.find(store, lost.key) == lost


def test_a_run_without_a_report_names_the_tokens_that_it_paid_for(store: FolderStore, run: Run) -> None:
    killed = runs.start(store, "killed-1", "build")
    for number in range(3):
        entry = answer(store, f"prompt {number}", ["a"], f"node {number}", "words")
        store.replace(
            entry.name, entry.model_copy(update={"run_id": "other" if number == 2 else killed.run_id}).to_bytes()
        )
    tokens = entry.input_tokens + entry.output_tokens
    paid = run.json("runs", killed.run_id, "--store", store.root)["paid"]
    assert paid == {"answers": 2, "input_tokens": 2 * entry.input_tokens, "output_tokens": 2 * entry.output_tokens}
    assert run("runs", killed.run_id, "--store", store.root) == 0
    assert f"paid for: 2 answers of language models, {2 * tokens} tokens\n" in run.out


HOSTILE = {
    "not json": b"hello\n",
    "a list": b"[1]\n",
    "no digest": canonical_json({"key": "a"}),
    "changed": signed().replace(b"words", b"wards"),
    "another key's name": signed(key="../../../../etc/passwd"),
    "a short key": signed(key="ab"),
    "a value that is no object": signed(value="words"),
    "a negative price": signed(input_tokens=-1),
    "too many tokens": signed(input_tokens=10**30),
    "a task with a slash": signed(task="../x"),
    "about everything": signed(about="a"),
    "an id without end": signed(makes="x" * 5000),
    "a clock of its own": signed(created="yesterday"),
    "a lone surrogate": signed().replace(b'"words"', b'"\\ud800"'),
    "a duplicate name": signed().replace(b'{"about"', b'{"about":[],"about"'),
    "deep": b"[" * 200_000 + b"\n",
    "not UTF-8": b"\xff\xfe\n",
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_line_is_counted_and_kept_out(store: FolderStore, quick: Path, name: str) -> None:
    good = signed()
    (quick / "file.jsonl").write_bytes(good + HOSTILE[name] + b"\n\n")
    rehearsed = import_ledger(store, quick / "file.jsonl", progress=Silent(), dry_run=True)
    assert store.list("ledger/") == store.list("runs/") == []
    done = import_ledger(store, quick / "file.jsonl", progress=Silent())
    assert (done.lines, done.added, done.quarantined, dict(done.reasons)) == (2, 1, 1, {"not-a-record": 1})
    assert (rehearsed.added, rehearsed.reasons) == (1, done.reasons)
    assert keys(store) == [digest_of(b"key")]
    assert done.run is not None
    run_id, rows = runs.quarantine_of(store)
    assert run_id == done.run
    (row,) = rows.to_pylist()
    assert (row["line"], row["reason"], row["document_id"]) == (2, "not-a-record", None)
    assert "wards" not in str(row)


def test_lines_without_end_newer_ones_and_a_file_that_breaks_off(store: FolderStore, quick: Path) -> None:
    with gzip.open(quick / "file.gz", "wb", 1) as file:
        file.write(signed() + b"x" * (LONGEST + 10) + b"\n" + signed(format=2))
        file.write(b"".join(signed(key=digest_of(bytes([number]))) for number in range(200)))
    data = (quick / "file.gz").read_bytes()
    (quick / "file.gz").write_bytes(data[: len(data) - 2000])
    done = import_ledger(store, quick / "file.gz", progress=Silent())
    assert dict(done.reasons) == {"too-large": 1, "newer-format": 1, "broken-off": 1}
    assert 1 <= done.added < 201
    assert len(keys(store)) == done.added


@pytest.mark.parametrize("data", [b"hello\n", b'{"id": "a", "text": "a corpus"}\n' * 3])
def test_a_file_of_something_else_is_refused(store: FolderStore, quick: Path, data: bytes) -> None:
    (quick / "file.jsonl").write_bytes(data)
    with pytest.raises(BadInput, match="is a record of a ledger"):
        import_ledger(store, quick / "file.jsonl", progress=Silent())
    with pytest.raises(BadInput, match="no such file"):
        import_ledger(store, quick / "nothing.jsonl", progress=Silent())
    (quick / "empty.jsonl").write_bytes(b"")
    assert import_ledger(store, quick / "empty.jsonl", progress=Silent()).lines == 0


def test_an_import_waits_for_no_run(store: FolderStore, quick: Path) -> None:
    (quick / "file.jsonl").write_bytes(signed())
    with acquire(store, "other"), pytest.raises(LeaseLost):
        import_ledger(store, quick / "file.jsonl", progress=Silent())
    assert keys(store) == []


def test_an_export_is_recorded_and_writes_over_nothing(store: FolderStore, quick: Path) -> None:
    answer(store, "prompt", ["a"], "node")
    export_ledger(store, quick / "a" / "file.jsonl", progress=Silent())
    (record,) = exports.exports(store)
    assert (record.version, record.path) == (None, str(quick / "a" / "file.jsonl"))
    for path, words in ((quick / "a" / "file.jsonl", "exists"), (store.root / "file.jsonl", "inside the store")):
        with pytest.raises(BadInput, match=words):
            export_ledger(store, path, progress=Silent())
    with pytest.raises(StoreNotWritable):
        export_ledger(store, quick / "a" / "file.jsonl" / "below", progress=Silent())
    assert [path.name for path in (quick / "a").iterdir()] == ["file.jsonl"]


def test_garbage_collection_leaves_the_ledger(quick: Path) -> None:
    root = quick / "store"
    for rows in (documents(4, words=60), documents(3, words=60)):
        build(settings(root, write_corpus(quick / "corpus.jsonl", rows)))
    store = open_folder(root)
    gone = set(passages_of(root, 1)["doc-0003"]) - set(passages_of(root, 2))
    made = [answer(store, "old", gone, "old"), answer(store, "new", passages_of(root)["doc-0001"], "new")]
    refuse(store, "refused", gone, "gap")
    collect(str(root), 1, 0.0, 4e9)
    assert gc.receipts_of(store)
    assert keys(store) == sorted(one.key for one in made)
    assert len(store.list("refusals/")) == 1


def export_and_die(root: str, path: str) -> None:
    """Kill this process while it writes the file."""

    class Deadly(Silent):
        def advance(self, stage: str, parts: int = 1) -> None:
            os.kill(os.getpid(), signal.SIGKILL)

    export_ledger(open_folder(root), Path(path), progress=Deadly())


def test_what_a_killed_export_left_is_removed_by_the_next(store: FolderStore, quick: Path) -> None:
    answer(store, "prompt", ["a"], "node")
    (quick / "out").mkdir()
    path = quick / "out" / "file.jsonl"
    assert children.run(export_and_die, str(store.root), str(path)) == -signal.SIGKILL
    assert [one.suffix for one in (quick / "out").iterdir()] == [".partial"]
    export_ledger(store, path, progress=Silent())
    assert list((quick / "out").iterdir()) == [path]


# Forgetting


def test_what_came_from_a_forgotten_document_goes_through_all_layers(quick: Path) -> None:
    root = quick / "store"
    chosen = settings(root, write_corpus(quick / "corpus.jsonl", documents(6, words=60)))
    build(chosen)
    store, passages = open_folder(root), passages_of(root)
    theirs, others = passages["doc-0002"], passages["doc-0004"]
    goes = [
        answer(store, "leaf", [theirs[0], *others], "n1"),
        answer(store, "inner", ["n1", "n2"], "n3"),
        answer(store, "root", ["n3"], "n4"),
        answer(store, "of its own", theirs, theirs[0]),
        answer(store, "by id", ["doc-0002"], ""),
        answer(store, "above a refusal", ["gap"], "n5"),
        answer(store, "above that", ["n5"], "n6"),
        answer(store, "nobody knows from where", ["unknown"], "n7"),
        answer(store, "above that, too", [*others, "n7"], "n8"),
        answer(store, "a circle", ["n10"], "n9"),
        answer(store, "and back", ["n9"], "n10"),
        answer(store, "says that it makes one of its passages", others, theirs[-1]),
    ]
    above = answer(store, "above its passage", [theirs[-1]], "n11")
    refuse(store, "refused", [*others, theirs[0]], "gap")
    stays = [
        answer(store, "another leaf", others, "n2"),
        answer(store, "above it", ["n2"], "n12"),
        answer(store, "another id", ["doc-0004"], ""),
        answer(store, "of nothing", [], ""),
    ]
    refuse(store, "another refusal", ["n12"], "n13")
    stays.append(answer(store, "above the other refusal", ["n13"], "n14"))
    store.create(ledger_name(digest_of(b"damaged")), b"{")
    store.create("ledger/README", b"nothing of ours")
    export_ledger(store, quick / "before.jsonl.gz", progress=Silent())
    fallen = {one.key for one in [*goes, above]} - {goes[-1].key}
    names = {ledger_name(key) for key in [*fallen, digest_of(b"damaged")]}
    names.add(refusal_name(digest_of(b"refused gap")))
    rehearsed = dry_run(store, Search(store, ["doc-0002"]))
    assert set(rehearsed.answers) == names
    assert len(rehearsed.answers) == len(names)
    assert rehearsed.exports[-1].version is None
    forget_here(str(root), chosen, "doc-0002")
    stays.append(goes[-1])
    assert keys(store) == sorted(["README", *(one.key for one in stays)])
    assert store.list("refusals/") == [refusal_name(digest_of(b"another refusal n13"))]
    *_, last = store.list("forgotten/")
    assert ForgetRecord.from_bytes(store.get(last), last).answers == len(names)
    # What was handed over before does not bring it back, here or in a store that has forgotten it, too.
    done = import_ledger(store, quick / "before.jsonl.gz", progress=Silent())
    left = {one.key for one in stays}
    assert {name for name in keys(store) if name != "README"} - left == {
        one.key for one in goes if one.makes in ("n7", "n8", "n9", "n10")
    }  # nobody can tell of these
    assert done.forgotten == 9


@pytest.mark.slow
def test_a_ledger_of_other_texts_is_not_searched_for_words(quick: Path) -> None:
    """Another document may say the same: an answer about that one stays."""
    root = quick / "store"
    rows = documents(4, words=60)
    title = next(iter(rows["doc-0001"]))
    chosen = settings(root, write_corpus(quick / "corpus.jsonl", rows))
    build(chosen)
    store = open_folder(root)
    kept = answer(store, "prompt", passages_of(root)["doc-0003"], "node", title)
    forget_here(str(root), chosen, "doc-0001")
    assert keys(store) == [kept.key]


def test_tombstones_name_the_passages(quick: Path) -> None:
    root = quick / "store"
    chosen = settings(root, write_corpus(quick / "corpus.jsonl", documents(4, words=60)))
    build(chosen)
    passages = passages_of(root)
    forget_here(str(root), chosen, "doc-0001")
    forgotten = tombstones.forgotten(open_folder(root))
    assert all(forgotten.names([passage]) for passage in passages["doc-0001"])
    assert forgotten.names(["x", "doc-0001"])
    assert not any(forgotten.names([passage]) for passage in passages["doc-0002"])
    assert not forgotten.names([])


# The command


def shown(capsys: pytest.CaptureFixture[str], *argv: object) -> Any:
    assert main([*map(str, argv), "--json"]) == 0
    return json.loads(capsys.readouterr().out)


def test_the_command_counts_hands_over_and_takes_in(
    store: FolderStore, quick: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, "ledger", "stats", "--store", store.root)["models"] == []
    assert main(["ledger", "stats", "--store", str(store.root)]) == 0
    assert "no language model has answered anything yet" in capsys.readouterr().out
    for number in range(3):
        answer(store, f"prompt {number}", ["a"], "node")
    refuse(store, "refused", ["a"], "gap")
    told = shown(capsys, "ledger", "stats", "--store", store.root)
    assert (told["answers"], told["input_tokens"], told["output_tokens"]) == (3, 300, 30)
    assert (told["damaged"], told["refused"]) == (0, 1)
    assert told["models"][0] | {"bytes": 0} == {
        "model": "model",
        "task": "summary",
        "answers": 3,
        "input_tokens": 300,
        "output_tokens": 30,
        "bytes": 0,
    }
    assert told["bytes"] == sum(len(store.get(name)) for name in store.list("ledger/"))
    path, other = quick / "answers.jsonl.gz", init_folder(quick / "other")
    assert shown(capsys, "ledger", "export", path, "--store", store.root)["answers"] == 3
    assert shown(capsys, "ledger", "import", path, "--store", other.root, "--dry-run")["added"] == 3
    assert shown(capsys, "ledger", "import", path, "--store", other.root)["added"] == 3
    assert shown(capsys, "ledger", "import", path, "--store", other.root)["there"] == 3
    for argv in (["stats"], ["export", str(quick / "b.jsonl")], ["import", str(path)]):
        assert main(["ledger", *argv, "--store", str(other.root)]) == 0
    out, err = capsys.readouterr()
    assert "answers added: 0; there already: 3" in out
    assert "export: 3 answers" in err
    assert main(["ledger", "export", str(path), "--store", str(store.root)]) == 2
    assert "exists; nothing was exported" in capsys.readouterr().err


def test_quarantine_shows_prompts_without_an_answer(store: FolderStore, capsys: pytest.CaptureFixture[str]) -> None:
    made = refuse(store, "refused", ["a"], "gap")
    store.create(refusal_name(digest_of(b"damaged")), b"{")
    told = shown(capsys, "quarantine", "--store", store.root)
    assert {one["key"]: one["reason"] for one in told["prompts"]} == {
        made.key: "declined",
        digest_of(b"damaged"): "damaged",
    }
    assert main(["quarantine", "--store", str(store.root)]) == 0
    assert made.key in capsys.readouterr().out
