"""The reader's commands: what they print, and how they fail."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from indexmill import command
from indexmill.results import read_results
from indexmill.store.layout import blob_path, ref_name
from tests.indexmill.running import Run, write_lines
from tests.indexmill.small_snapshot import SnapshotWriter, Text, point, publish
from tests.paths import ROOT


@pytest.fixture(autouse=True)
def _here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_query_prints_the_passages_with_rank_score_title_and_document(run: Run, store: Path) -> None:
    assert run("query", "Ada Venn paid for the bridge.", "-k", 2) == 0
    first, text, *_ = run.out.splitlines()
    # The score is 1 of all methods, and a quarter of its next passage's.
    assert first == " 1. 1.1712  Marrow Bridge § Money > Gifts  [bridge]"
    assert text == "    Ada Venn paid for the bridge."
    assert " 2. " in run.out
    assert " 3. " not in run.out


def test_query_as_json_is_one_object(run: Run, store: Path) -> None:
    found = run.json("query", "Tallow is a town of lamps.", "--store", store, "--method", "dense")
    assert (found["version"], found["method"]) == (1, "dense")
    assert found["hits"][0] | {"score": 1, "id": ""} == {
        "kind": "passage",
        "id": "",
        "score": 1,
        "title": "",
        "text": "Tallow is a town of lamps.",
        "document_ids": ["tallow"],
        "tokens": 6,
        "version": 1,
        "source": None,
        "url": None,
        "section": [],
        "span": [0, 26],
        "metadata": {},
    }


def test_where_leaves_documents_out_and_all_conditions_have_to_hold(run: Run, tmp_path: Path) -> None:
    texts = [Text(one, "", "The bridge.", {"year": 2020 + i, "lang": "en"}) for i, one in enumerate("abc")]
    publish(tmp_path / "s", {"p": texts})
    query = ("query", "bridge", "--store", tmp_path / "s", "--where", "lang=en,de")
    assert [hit["document_ids"] for hit in run.json(*query, "--where", "year>=2021")["hits"]] == [["b"], ["c"]]
    assert run(*query, "--where", "year<2000") == 0
    assert run.out == "no hits\n"
    questions = write_lines(tmp_path / "q.jsonl", {"question": "bridge", "gold_ids": ["a", "c"]})
    evaluate = ("evaluate", questions, "--store", tmp_path / "s", "-k", "1,2")
    for where, expected in (((), [0.5, 0.5]), (("--where", "year>2020"), [0.0, 0.5]), (("--where", "year=1"), [0, 0])):
        found = run.json(*evaluate, *where)["methods"]["dense"]
        assert [found["recall@1"], found["recall@2"]] == expected


def test_corpus_text_cannot_command_the_terminal(run: Run, tmp_path: Path) -> None:
    publish(tmp_path / "s", {"p": (Text("a", "T\x1b[2J", "one \x1b]0;owned\x07 two"),)})
    assert run("query", "one", "--store", tmp_path / "s") == 0
    assert "\x1b" not in run.out
    assert "\x07" not in run.out
    assert run.json("query", "one", "--store", tmp_path / "s")["hits"][0]["title"] == "T\x1b[2J"


def test_ids_and_titles_with_line_ends_take_one_line_wherever_they_are_printed(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "s"
    questions = write_lines(tmp_path / "q.jsonl", {"question": "The bridge\nof Vell", "gold_ids": ["a\nid\u2028x"]})
    publish(store, {"p": (Text("b", "B", "The bridge of Vell."),)})
    publish(store, {"p": (Text("b", "B", "The bridge of Vell."), Text("a\nid\u2028x", "A\ntitle\x1b", "A river."))}, 2)
    assert run("query", "A river.", "--store", store, "-k", 1) == 0
    assert "  A title\ufffd  [a\\nid\\u2028x]" in run.out.splitlines()[0]
    assert run("answer", "A river?", "--store", store) == 0
    assert any(line.endswith("A title\ufffd  [a\\nid\\u2028x]") for line in run.out.splitlines())
    assert run("diff", 1, 2, "--store", store) == 0
    assert "  added:   a\\nid\\u2028x" in run.out.splitlines()
    assert run("evaluate", questions, "--store", store, "-k", 1, "--misses", 1) == 0
    assert "The bridge of Vell" in run.out.splitlines()
    assert any(line.startswith("    missed: A title\ufffd [a\\nid\\u2028x]") for line in run.out.splitlines())
    for argv in (["show"], ["snapshots"], ["query", "A river."], ["evaluate", questions, "--misses", 1]):
        assert run(*argv, "--store", store) == 0
        assert not {"\x1b", "\u2028"} & set(run.out + run.err)


def test_a_title_from_right_to_left_keeps_to_its_place_in_a_line(run: Run, tmp_path: Path) -> None:
    publish(tmp_path / "s", {"p": (Text("نهر", "جسر 1", "The bridge of Vell."),)})
    for name in ("query", "answer"):
        assert run(name, "bridge", "--store", tmp_path / "s") == 0
        assert any(line.endswith(" \u2068جسر 1\u2069  [\u2068نهر\u2069]") for line in run.out.splitlines())


def test_an_error_cannot_command_the_terminal(run: Run, store: Path) -> None:
    assert run("evaluate", "no\x1b[2Jfile.jsonl", "--store", store) == 2
    assert "no\ufffd[2Jfile.jsonl" in run.err


def test_shared_options_stand_before_or_after_the_name_and_the_later_wins(run: Run, store: Path) -> None:
    assert run("--store", store, "--json", "show") == 0
    assert json.loads(run.out)["version"] == 1
    assert run("--store", "nowhere", "show", "--store", store, "--corpus", "any", "--corpus", "other") == 0


def test_snapshots_lists_the_newest_first(run: Run, store: Path) -> None:
    writer = publish(store, {"p": (Text("a", "A", "one"),)}, version=2, note="smaller")
    point(writer.store, "prod", 1)
    listed = run.json("snapshots")
    assert listed["aliases"] == {"prod": 1}
    assert [(one["version"], one["documents"], one["passages"], one["note"]) for one in listed["snapshots"]] == [
        (2, 1, 1, "smaller"),
        (1, 4, 5, ""),
    ]
    assert {len(one["manifest"]) for one in listed["snapshots"]} == {64}
    assert run("snapshots") == 0
    header, newest, oldest = run.out.splitlines()
    assert header.split()[:2] == ["version", "created"]
    assert newest.split()[0] == "2"
    assert "2026-01-02 02:00:00" in newest
    assert newest.endswith("smaller")
    assert (header.split()[4:6], newest.split()[4:6], oldest.split()[4:6]) == (
        ["passages", "aliases"],
        ["1", newest.split()[5]],
        ["5", "prod"],
    )


def test_snapshots_still_lists_what_is_damaged(run: Run, store: Path) -> None:
    publish(store, version=2)
    (store / ref_name("main", 1)).unlink()
    (store / ref_name("main", 1)).write_bytes(b'{"version": 1')
    new, old = run.json("snapshots")["snapshots"]
    assert new["damaged"] is None
    assert "not a readable ref" in old["damaged"]
    assert run("snapshots") == 0


def test_show_says_what_a_snapshot_holds(run: Run, store: Path) -> None:
    shown = run.json("show", 1)
    assert shown["version"] == 1
    assert len(shown["manifest"]) == 64
    assert shown["corpus"]["documents"] == 4
    assert shown["families"] == {}
    assert shown["methods"] == ["fused", "dense"]
    assert {"name", "digest", "bytes", "rows", "kind"} <= set(shown["artifacts"][0])
    assert run("show") == 0
    assert run.out.startswith("version 1\n  manifest   " + shown["manifest"][:12] + "\n  published  2026-01-0")
    assert "\n\ncorpus\n  documents  4\n  passages   5\n" in run.out
    assert shown["artifacts"][0]["digest"] not in run.out
    assert "passages/p0" in run.out
    assert "8 artifacts" in run.out


def test_evaluate_prints_recall_by_method(run: Run, store: Path, tmp_path: Path) -> None:
    questions = write_lines(
        tmp_path / "q.jsonl", {"question": "Tallow is a town of lamps.", "gold_ids": ["tallow", "gone"]}
    )
    found = run.json("evaluate", questions, "--method", "dense", "--k", "1,5")
    assert found["version"] == 1
    assert found["unknown_gold_ids"] == 1
    assert found["methods"]["dense"]["recall@1"] == 0.5
    assert {"recall@5", "questions", "tokens_per_question", "milliseconds_per_question"} <= set(
        found["methods"]["dense"]
    )
    assert run("evaluate", questions, "-k", "5") == 0
    assert "recall@5" in run.out
    assert "1 of 2 gold documents is not in the snapshot" in run.err
    for wrong in ("five", "", "0"):
        assert run("evaluate", questions, "-k", wrong) == 2
    assert run("evaluate", tmp_path / "none.jsonl") == 2
    assert "none.jsonl" in run.err


@pytest.mark.slow
def test_evaluate_in_several_processes_finds_the_same(run: Run, store: Path, tmp_path: Path) -> None:
    texts = ("Tallow is a town of lamps.", "Who paid for the bridge?", "Where does the Ilse rise?") * 4
    questions = write_lines(tmp_path / "q.jsonl", *({"question": text, "gold_ids": ["tallow"]} for text in texts))
    alone, several = (
        run.json("evaluate", questions, "-m", "dense", "-k", "1,5", *more)["methods"]["dense"]
        for more in ((), ("--processes", "2"))
    )
    assert several["recall@1"] == alone["recall@1"] == pytest.approx(1 / 3)
    assert run("evaluate", questions, "--processes", "0") == 2


def test_evaluate_writes_what_every_question_found_and_shows_what_it_misses(
    run: Run, store: Path, tmp_path: Path
) -> None:
    lamps = {"question": "Tallow is a town of lamps.", "gold_ids": ["tallow"]}
    worse = {**lamps, "gold_ids": ["tallow", "gone"], "id": "1", "type": "bridge"}
    questions = write_lines(tmp_path / "q.jsonl", worse, {**lamps, "id": "2", "type": "single"})
    output = tmp_path / "results.jsonl"
    found = run.json("evaluate", questions, "-m", "dense,fused", "-k", "1,3", "--output", output, "--misses", "5")
    lines = read_results(output)
    assert [(one.method, one.id, one.ranks) for one in lines] == [
        ("dense", "1", (1, None)),
        ("dense", "2", (1,)),
        ("fused", "1", (1, None)),
        ("fused", "2", (1,)),
    ]
    assert found["output"] == str(output)
    assert found["misses"]["dense"]["questions"] == 1
    assert found["misses"]["dense"]["first"][0]["missed"] == [{"document_id": "gone", "title": None, "rank": None}]
    assert run("evaluate", questions, "-m", "dense", "-k", "1", "--misses") == 0
    assert "missed: gone, not in the snapshot" in run.out
    assert "bridge          1  dense   0.5000" in run.out
    assert run("evaluate", questions, "--output", tmp_path / "none" / "results.jsonl") == 2
    assert "does not exist" in run.err
    assert run("evaluate", questions, "--output", output, "--fit") == 2
    assert "--output: --fit does not accept that" in run.err


def test_settings_are_tried_without_being_published(run: Run, store: Path, tmp_path: Path) -> None:
    assert run("query", "river", "--set", "dense=2", "--json") == 0
    assert json.loads(run.out)["parameters"] == {"dense": 2}
    assert run("query", "river", "-m", "dense", "--set", "depth=2") == 2
    assert "parameters=: unknown 'depth'; the method's parameters are title" in run.err
    assert run("query", "river", "--set", "dens=2") == 2
    assert "(did you mean 'dense'?)" in run.err
    assert run("answer", "river", "--quote", "--set", "dense=much") == 2
    assert "dense is 'much'" in run.err
    evaluate = ("evaluate", write_lines(tmp_path / "questions.jsonl", {"question": "river", "gold_ids": ["ilse"]}))
    assert run(*evaluate, "--set", "fused.pool=3") == 0
    for more, message in (
        (["--set", "fused.pool=0"], "pool is 0"),
        (["--set", "pool=3"], "name the method"),
        (["--set", "pool=3", "--fit"], "--set: --fit does not accept that"),
    ):
        assert run(*evaluate, *more) == 2
        assert message in run.err


def test_verify_says_whether_every_byte_is_right(run: Run, store: Path) -> None:
    report = run.json("verify")
    assert report["ok"] is True
    digest = run.json("show")["artifacts"][0]["digest"]
    path = store / blob_path(digest)
    data = bytearray(path.read_bytes())
    data[-1] ^= 1
    path.unlink()
    path.write_bytes(data)
    assert run("verify") == 1
    assert digest in run.out
    assert "version 1: 1 problem; " in run.out
    assert run("verify", "--json") == 1
    report = json.loads(run.out)
    assert report["ok"] is False
    assert len(report["problems"]) == 1


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (("show", "7"), "no version 7"),
        (("query", "x", "--alias", "prod"), "no alias 'prod'"),
        (("query", "x", "--snapshot", "1", "--alias", "prod"), "one of them"),
        (("query", "x", "--store", "nowhere"), "there is no index yet"),
        (("query", "x", "--method", "tri_graph"), "does not contain"),
        (("query", "x", "--method", "magic"), "no method"),
        (("query", "x", "-k", "0"), "-k"),
        (("query", "x", "--where", "year"), "is not a condition"),
        (("query", "x", "--where", "year=1"), "no document has a field 'year'; the fields are document_id, title"),
        (("query",), "QUESTION"),
        (("show", "--config", "none.yaml"), "none.yaml"),
        (("query", "\udcff"), "Unicode"),
    ],
)
def test_an_error_is_a_line_on_standard_error_and_an_exit_code(
    run: Run, store: Path, argv: tuple[str, ...], message: str
) -> None:
    assert run(*argv) == 2
    assert message in run.err
    assert run.out == ""
    assert "Traceback" not in run.err


def test_the_store_is_named_by_the_configuration_file(run: Run, store: Path, tmp_path: Path) -> None:
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    publish(elsewhere / "index", {"p": (Text("a", "A", "one"),)})
    (elsewhere / "my.yaml").write_text("store: index\ncorpus: [x]\n")
    assert run.json("show", "-c", elsewhere / "my.yaml")["corpus"]["documents"] == 1
    (tmp_path / "indexmill.yaml").write_text("store: elsewhere/index\n")
    assert run.json("show")["corpus"]["documents"] == 1
    assert run.json("show", "--store", store)["corpus"]["documents"] == 4
    for text in ("store: [1]", "- a", "store: {"):
        (tmp_path / "indexmill.yaml").write_text(text)
        assert run("show") == 2
        assert "indexmill.yaml" in run.err
    (tmp_path / "indexmill.yaml").write_text("")
    assert run.json("show")["corpus"]["documents"] == 4


def test_without_a_yaml_library_the_store_must_be_named(
    run: Run, store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "yaml", None)
    (tmp_path / "indexmill.yaml").write_text("store: store\n")
    assert run("show") == 2
    assert "--store" in run.err
    assert run("show", "--store", store) == 0


@pytest.mark.parametrize("command", [("show",), ("verify",), ("query", "Ada Venn?", "--snapshot")])
def test_a_version_is_a_number_an_alias_or_newest(run: Run, tmp_path: Path, command: tuple[str, ...]) -> None:
    writer = SnapshotWriter(tmp_path / "s")
    writer.shard("p0", [Text("one", "Title", "Ada Venn.")])
    writer.bm25()
    writer.publish(1)
    writer.publish(2)
    point(writer.store, "prod", 1)
    for word, version in (("1", 1), ("prod", 1), ("newest", 2), ("2", 2)):
        assert run.json(*command, word, "--store", tmp_path / "s")["version"] == version
    assert run(*command, "staging", "--store", tmp_path / "s") == 2
    assert "no alias 'staging': it has prod" in run.err
    assert run(*command, "3", "--store", tmp_path / "s") == 2
    assert "has no version 3: it has versions 1 to 2" in run.err


def test_the_help_of_query_lists_options_by_family(run: Run) -> None:
    assert run("query", "--help") == 0
    sections: dict[str, str] = {}
    title = ""
    for line in run.out.splitlines():
        if line.endswith(":") and not line.startswith(" "):
            title = line[:-1]
        sections[title] = sections.get(title, "") + line + "\n"
    of = {
        "Options": ("--method", "-k", "--set", "--where", "--help"),
        "For lsh_tree, community_tree, heterograph": ("--token-budget",),
        "For lsh_tree": ("--pattern", "--ratio"),
        "For community_tree": ("--k-level", "--levels", "--passages"),
        "For heterograph": ("--entries", "--texts", "--units", "--attributes", "--high-level", "--relations"),
        "Reranking": ("--rerank ", "--rerank-model", "--rerank-depth"),
        "Who asks": ("--as ", "--unrestricted"),
        "Which index": ("--snapshot", "--alias", "--run", "--store", "--config", "--corpus"),
        "Output": ("--explain", "--json", "--debug"),
    }
    assert list(sections)[1:] == list(of)
    for title, options in of.items():
        for option in options:
            assert [name for name, text in sections.items() if f" {option}" in text and name] == [title], option


def test_an_unknown_command_names_those_that_are_written_alike(run: Run) -> None:
    for word, alike in (("biuld", ": did you mean build?"), ("qurey", ": did you mean query?"), ("xxxxxxxx", ".")):
        assert run(word) == 2
        assert f"No such command {word!r}{alike}\n" in run.err


def test_a_command_of_the_pipeline_says_where_it_runs(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(command, "_has_pipeline", lambda: False)
    for name in ("init", "build", "runs", "quarantine"):
        assert run(name, "--corpus", "x", "--unheard-of", "--json") == 2
        assert "belongs to the pipeline, which is not installed: pip install 'indexmill[pipeline]'" in run.err
        assert run.out == ""


def test_the_help_lists_what_works_where_it_is_installed(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    advice = "To build indexes: pip install 'indexmill[pipeline]'."
    assert run("--help") == 0
    assert "Bring the index up to date" in run.out
    assert advice not in run.out
    monkeypatch.setattr(command, "_has_pipeline", lambda: False)
    assert run("--help") == 0
    assert "Retrieve the passages" in run.out
    assert "Bring the index up to date" not in run.out
    assert advice in run.out


def test_a_missing_package_of_the_pipeline_is_named(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def load(name: str) -> None:
        raise ModuleNotFoundError("No module named 'prefect'", name="prefect")

    monkeypatch.setattr(command, "_pipeline_command", load)
    assert run("build") == 2
    assert run.err == "error: the package 'prefect' is not installed: pip install 'indexmill[pipeline]'\n"


def test_only_an_unexpected_error_shows_its_traceback(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fail(*_: object) -> None:
        raise RuntimeError("unforeseen")

    monkeypatch.setattr("indexmill.store.reader.StoreReader.versions", fail)
    assert run("snapshots") == 1
    assert "Traceback" in run.err
    assert "in fail\n" in run.err
    assert run.err.splitlines()[-1].startswith("error: RuntimeError: unforeseen (a fault")
    assert run("snapshots", "--store", "elsewhere") == 2
    assert "Traceback" not in run.err
    assert run("snapshots", "--store", "elsewhere", "--debug") == 2
    assert "Traceback" in run.err


@pytest.mark.slow
@pytest.mark.parametrize(("closed", "printed"), [("2>&-", True), (">&-", False)])
def test_a_closed_stream_ends_no_command(store: Path, closed: str, printed: bool) -> None:
    command = f"exec {sys.executable} -m indexmill snapshots --store {store} {closed}"
    done = subprocess.run(
        ["/bin/sh", "-c", command], cwd=ROOT, capture_output=True, text=True, timeout=120, check=False
    )
    assert (done.returncode, done.stderr) == (0, "")
    assert ("version" in done.stdout) == printed


@pytest.mark.slow
def test_the_package_runs_as_a_module_and_json_is_utf8_anywhere(tmp_path: Path) -> None:
    publish(tmp_path / "store", {"p": (Text("a", "Œuvre", "Où est l’Ilse ?"),)})
    argv = [sys.executable, "-W", "error", "-m", "indexmill", "query", "Ilse", "--store", str(tmp_path / "store")]
    latin = os.environ | {"PYTHONIOENCODING": "latin-1"}
    done = subprocess.run([*argv, "--json"], capture_output=True, env=latin, check=True)
    assert json.loads(done.stdout.decode("utf-8"))["hits"][0]["title"] == "Œuvre"
    assert done.stderr == b""
    shown = subprocess.run(argv, capture_output=True, env=latin, check=True)
    assert "Où est l\\u2019Ilse".encode("latin-1") in shown.stdout
    shown = subprocess.run([*argv[:5], "show", "7", *argv[-2:]], capture_output=True, check=False)
    assert shown.returncode == 2
