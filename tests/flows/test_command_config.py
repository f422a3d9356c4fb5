"""`indexmill config`, and what the configuration does with keys."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.build_run import run_stages
from flows.operation import operation
from indexmill.errors import DiskFull
from indexmill.store.manifest import Manifest
from schemas.config import Configuration, load_configuration
from storage import runs
from storage.folder import init_folder
from tasks.core.executor import InlineExecutor
from tasks.pipeline.build import Build
from tasks.stages.ingest.source_files import find
from tests.flows.children import Warnings
from tests.flows.commands import Run, write_settings
from tests.llm_server import CANARY

WORD = "word-of-the-proxy"

Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shown(run: Run, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Runs `indexmill config` with settings in a file; its exit code and what it printed."""
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def config(settings: dict[str, Any], *argv: str) -> tuple[int, str, str]:
        write_settings(Path("indexmill.yaml"), settings)
        return run.printed("config", *argv)

    return config


def test_every_setting_is_shown_with_where_it_comes_from(shown: Shown) -> None:
    code, out, err = shown({"split": {"tokens": 128}, "corpus": {"paths": ["a"]}}, "--store", "here", "--json")
    assert (code, err) == (0, "")
    told = json.loads(out)
    assert told["file"] == "indexmill.yaml"
    assert told["settings"]["split"]["tokens"] == 128
    origins = {name: told["from"][name] for name in ("split.tokens", "split.overlap", "store", "corpus.paths")}
    assert origins == {
        "split.tokens": "file",
        "split.overlap": "default",
        "store": "option",
        "corpus.paths": "file",
    }
    assert told["key"] == {"needed": False, "found": False, "from": None, "problem": None}


def test_only_what_is_not_the_default(shown: Shown) -> None:
    code, out, _ = shown({"split": {"tokens": 128}, "store": "here"}, "--changed", "--corpus", "other")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == ["store", "corpus.paths", "split.tokens"]


def test_nothing_but_the_corpus_is_changed_after_init(run: Run) -> None:
    assert run("init", "mine") == 0
    argv = ["config", "--changed", "-c", "mine/indexmill.yaml"]
    assert run(*argv) == 0
    lines = run.out.splitlines()
    assert lines[1].split() == ["corpus.paths", '["mine/corpus.jsonl"]', "file"]
    assert lines[2:] == ["key of the language model: none is needed"]
    told = run.json(*argv)
    assert told["settings"] == {"corpus": {"paths": ["mine/corpus.jsonl"]}}
    assert told["from"] == {"corpus.paths": "file"}


def test_a_default_that_is_written_down_is_not_changed(shown: Shown) -> None:
    settings = {"split": {"tokens": 256}, "families": {"bm25": {"parameters": {"b": 0.5}}}, "store": "./store"}
    code, out, _ = shown(settings, "--changed")
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()[1:-1]] == ["families.bm25.parameters.b"]
    code, out, _ = shown({"split": {"tokens": 256}}, "--changed")
    assert out.splitlines()[0] == "every setting has its default"


@pytest.mark.parametrize(
    ("folder", "corpus", "paths"),
    [
        (".", "docs", ["docs"]),
        (".", "./docs/", ["docs"]),
        (".", "docs/*.md", ["docs/*.md"]),
        ("docs", "docs/sub", ["sub"]),
        ("other", "docs", ["{here}/docs"]),
        (".", "{here}/docs", ["{here}/docs"]),
    ],
)
def test_init_writes_the_corpus_as_it_was_given(
    run: Run, tmp_path: Path, folder: str, corpus: str, paths: list[str]
) -> None:
    (tmp_path / "docs" / "sub").mkdir(parents=True)
    for name in ("docs/a.md", "docs/sub/b.md"):
        (tmp_path / name).write_text("Text.")
    assert run("init", folder, "--corpus", corpus.format(here=tmp_path)) == 0
    file = tmp_path / folder / "indexmill.yaml"
    assert yaml.safe_load(file.read_text())["corpus"]["paths"] == [path.format(here=tmp_path) for path in paths]
    read = load_configuration(file).corpus
    assert read is not None
    assert find(read).files


def test_init_advises_another_encoder_for_other_languages(run: Run, tmp_path: Path) -> None:
    german = "Die Brücke über den Fluss wurde nach dem Krieg wieder aufgebaut, und viele Leute kamen zum Fest."
    english = "The bridge over the river was built again after the war, and many people came to the feast of it."
    (tmp_path / "a.jsonl").write_text("".join(json.dumps({"id": str(i), "text": german}) + "\n" for i in range(3)))
    (tmp_path / "b.md").write_text(english)
    os.mkfifo(tmp_path / "pipe.md")
    (tmp_path / "c.jsonl").write_text('{"id": "1", "text": "' + "\\x" * 40 + '"}\n"' + "a" * 50)
    assert run("init", "mine", "--corpus", "a.jsonl", "--corpus", "*.md", "--corpus", "c.jsonl", "--json") == 0
    assert "warning: of 4 texts, 3 in de, and the default encoder reads English" in run.err
    assert json.loads(run.out)["languages"] == {"de": 3, "en": 1}
    assert run("init", "other", "--corpus", "b.md") == 0
    assert "encoder" not in run.err


def test_init_writes_a_table_as_a_source(run: Run, tmp_path: Path) -> None:
    for name in (
        "lake/pages/_delta_log/0.json",
        "lake/pages/part-0.parquet",
        "docs/a.md",
        "old/.hoodie/x",
        "old/b.csv",
    ):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    assert run("init", "lake", "--corpus", "lake/pages", "--corpus", "docs") == 0
    assert "lake/pages is a table, and became an entry of corpus.sources" in run.out
    corpus = yaml.safe_load((tmp_path / "lake/indexmill.yaml").read_text())["corpus"]
    assert corpus["sources"] == [{"kind": "table", "format": "delta", "url": "pages"}]
    assert corpus["paths"] == [f"{tmp_path}/docs"]
    read = load_configuration(tmp_path / "lake/indexmill.yaml").corpus
    assert read is not None
    assert read.places[0].url == str(tmp_path / "lake/pages")  # type: ignore[union-attr]
    for path, message in (("lake", "is a Delta table"), ("old", "such tables cannot be read")):
        assert run("init", "new", "--corpus", path) == 2
        assert message in run.err


def test_a_full_disk_is_an_exit_code_of_its_own(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.EDQUOT, os.strerror(errno.EDQUOT))

    monkeypatch.setattr(Path, "write_bytes", full)
    assert run("init", tmp_path / "mine") == 6
    assert f"{tmp_path / 'mine'} cannot be written: Disk quota exceeded; free some space there" in run.err


def test_a_full_disk_that_nothing_else_named_ends_a_run_with_that_code(tmp_path: Path) -> None:
    """Such as of a library that writes to a folder for temporary files."""
    store = init_folder(tmp_path / "store")
    with (
        pytest.raises(DiskFull, match="nothing is lost, and the next run continues") as caught,
        operation(store, "build"),
    ):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "/scratch/x")
    assert "/scratch/x cannot be written: No space left on device; free some space" in str(caught.value)
    (run,) = runs.list_runs(store)
    assert (run.state, run.exit_code) == ("failed", 6)
    with pytest.raises(FileNotFoundError), operation(store, "build"):
        raise FileNotFoundError(errno.ENOENT, "no such file", "x")
    assert runs.list_runs(store)[-1].exit_code == 1


def test_init_refuses_a_corpus_that_is_not_there_and_warns_of_an_empty_one(run: Run, tmp_path: Path) -> None:
    assert run("init", "mine", "--corpus", "dosc") == 2
    assert "corpus path dosc does not exist; nothing was written" in run.err
    assert list(tmp_path.iterdir()) == []
    Path("docs").mkdir()
    assert run("init", "--corpus", "docs") == 0
    assert "warning: there are no corpus files under docs yet" in run.err
    Path("docs/a.odd").touch()
    assert run("init", "other", "--corpus", "docs") == 0
    assert "warning: 1 file is not read, since no reader takes the suffix: 1 .odd, such as" in run.err
    assert Path("indexmill.yaml").is_file()


def test_the_place_of_the_key_is_told_and_never_the_key(
    shown: Shown, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = {
        "llm": {"backend": "openai", "model": f"a-model-called-{CANARY}", "proxy": f"http://bob:{WORD}@proxy:1"}
    }
    for argv in ((), ("--json",)):
        code, out, err = shown(settings, *argv)
        assert code == 0
        assert "OPENAI_API_KEY" in out
        assert "is not set" in out
        monkeypatch.setenv("OPENAI_API_KEY", CANARY)
        code, found, _ = shown(settings, *argv)
        monkeypatch.delenv("OPENAI_API_KEY")
        assert code == 0
        assert "the environment variable OPENAI_API_KEY (llm.api_key_env)" in found
        assert "is not set" not in found
        for printed in (out, err, found):
            assert CANARY not in printed
            assert WORD not in printed


def test_what_is_unwise_is_said_as_a_warning(shown: Shown) -> None:
    Path("key").write_text(CANARY, encoding="utf-8")
    Path("key").chmod(0o644)
    settings = {"backend": "openai", "model": "small", "base_url": "http://model.example/v1", "api_key_file": "key"}
    code, out, err = shown({"llm": settings})
    assert code == 0
    assert "found in the file key (llm.api_key_file)" in out
    assert "chmod 600" in err
    assert "without encryption" in err
    assert CANARY not in out + err


@pytest.mark.parametrize(
    "settings",
    [
        {"llm": {"api_key": CANARY}},
        {"llm": {"openai_api_key": CANARY}},
        {"api-key": CANARY},
        {"OPENAI_API_KEY": CANARY},
        {"corpus": {"paths": ["x"]}, "run": {"token": CANARY}},
        {"llm": {"api_key_env": CANARY}},
        {"llm": {"base_url": f"ftp://me:{CANARY}@host"}},
        {"llm": {"proxy": f"{CANARY}"}},
        {"llm": {"temperature": CANARY}},
        {"embed": {"backend": CANARY}},
    ],
)
@pytest.mark.parametrize("debug", [False, True])
def test_a_key_in_the_configuration_is_refused_and_not_repeated(
    shown: Shown, settings: dict[str, Any], debug: bool
) -> None:
    code, out, err = shown(settings, *(["--debug"] if debug else []))
    assert code == 2
    assert CANARY not in out + err
    assert "indexmill.yaml" in err
    if "key" in str(settings).lower().replace("api_key_env", ""):
        assert "llm.api_key_env" in err


def test_a_file_that_is_no_yaml_is_not_repeated_with_its_key(run: Run) -> None:
    Path("other.yaml").write_text(f"llm: {{api_key: {CANARY}: :\n", encoding="utf-8")
    for argv in (["config"], ["snapshots"]):
        assert run(*argv, "--debug", "-c", "other.yaml") == 2
        assert "other.yaml" in run.err
        assert CANARY not in run.out + run.err


def test_a_run_says_at_its_start_what_the_model_lacks_and_records_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.delenv("MISSING_KEY", raising=False)
    llm = {"backend": "openai", "model": "small", "api_key_env": "MISSING_KEY", "proxy": f"http://bob:{WORD}@proxy:1"}
    configuration = Configuration.model_validate({"store": str(tmp_path / "store"), "llm": llm})
    progress = Warnings()

    def fails(build: Build, publish: object) -> Manifest:
        raise RuntimeError(f"http://bob:{WORD}@proxy:1 does not know {CANARY}")

    with pytest.raises(RuntimeError):
        run_stages("build", configuration, InlineExecutor(), fails, progress=progress)
    (said,) = progress.warnings
    assert "MISSING_KEY" in said
    kept = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert any(b"RuntimeError: http://***@proxy:1 does not know ***" in data for data in kept)
    assert not any(secret.encode() in data for data in kept for secret in (CANARY, WORD))
