"""`indexmill config`, and what the configuration does with keys."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import yaml

from flows.run import run_stages
from indexmill.command import main
from indexmill.manifest import Manifest
from schemas.config import Configuration
from tasks.build import Build
from tasks.executor import InlineExecutor
from tasks.report import Silent
from tests.llm_server import CANARY

WORD = "word-of-the-proxy"

Shown = Callable[..., tuple[int, str, str]]


@pytest.fixture
def shown(capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Shown:
    """Runs `indexmill config` with settings in a file; its exit code and what it printed."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)

    def run(settings: dict[str, Any], *argv: str) -> tuple[int, str, str]:
        Path("indexmill.yaml").write_text(yaml.safe_dump(settings), encoding="utf-8")
        code = main(["config", *argv])
        out, err = capsys.readouterr()
        return code, out, err

    return run


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


def test_a_file_that_is_no_yaml_is_not_repeated_with_its_key(shown: Shown, capsys: pytest.CaptureFixture[str]) -> None:
    Path("other.yaml").write_text(f"llm: {{api_key: {CANARY}: :\n", encoding="utf-8")
    for argv in (["config"], ["snapshots"]):
        assert main([*argv, "--debug", "-c", "other.yaml"]) == 2
        out, err = capsys.readouterr()
        assert "other.yaml" in err
        assert CANARY not in out + err


def test_a_run_says_at_its_start_what_the_model_lacks_and_records_no_secret(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("OPENAI_API_KEY", CANARY)
    monkeypatch.delenv("MISSING_KEY", raising=False)
    llm = {"backend": "openai", "model": "small", "api_key_env": "MISSING_KEY", "proxy": f"http://bob:{WORD}@proxy:1"}
    configuration = Configuration.model_validate({"store": str(tmp_path / "store"), "llm": llm})
    warned: list[str] = []

    class Kept(Silent):
        def warn(self, message: str) -> None:
            warned.append(message)

    def fails(build: Build, publish: object) -> Manifest:
        raise RuntimeError(f"http://bob:{WORD}@proxy:1 does not know {CANARY}")

    with pytest.raises(RuntimeError):
        run_stages("build", configuration, InlineExecutor(), fails, progress=Kept())
    (said,) = warned
    assert "MISSING_KEY" in said
    kept = [path.read_bytes() for path in (tmp_path / "store").rglob("*") if path.is_file()]
    assert any(b"RuntimeError: http://***@proxy:1 does not know ***" in data for data in kept)
    assert not any(secret.encode() in data for data in kept for secret in (CANARY, WORD))
