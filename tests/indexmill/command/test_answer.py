"""``indexmill answer``: where the model comes from, what is printed, and what never is."""

from __future__ import annotations

import json
import re
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from indexmill.command import waiting
from tests.indexmill.running import Run
from tests.indexmill.small_snapshot import Text, publish
from tests.llm_server import CANARY, Faults, LlmServer

QUESTION = "Who paid for the Marrow Bridge?"
SAID = {"reasoning": "Text 1 says who paid.", "found": True, "answer": "Ada Venn"}


@pytest.fixture
def here(store: Path, monkeypatch: pytest.MonkeyPatch, endpoint: None) -> Path:
    """A folder with a store, and a key in the environment."""
    monkeypatch.chdir(store.parent)
    return store.parent


def asking(server: LlmServer, *more: object) -> tuple[object, ...]:
    """The command that asks the model of a server."""
    return ("answer", QUESTION, "-m", "dense", "--model", "small", "--base-url", server.base_url, *more)


def configure(folder: Path, **llm: Any) -> None:
    (folder / "indexmill.yaml").write_text(json.dumps({"store": "store", "llm": llm}))


def test_without_a_model_the_answer_is_a_quotation_and_says_so(run: Run, here: Path) -> None:
    assert run("answer", QUESTION, "-m", "dense", "-k", 2) == 0
    text, _, how, first, *_ = run.out.splitlines()
    assert text == "Ada Venn paid for the bridge."
    assert how.startswith("quoted, no model was asked; version 1, dense; ")
    assert first.startswith(" 1. Marrow Bridge  [bridge]")
    found = run.json("answer", QUESTION, "-m", "dense", "-k", 2)
    assert (found["question"], found["answer"], found["model"], found["version"]) == (QUESTION, text, None, 1)
    assert found["hits"][0]["document_ids"] == ["bridge"]


def test_the_model_of_the_options_is_asked(run: Run, here: Path) -> None:
    with LlmServer(lambda chat: SAID) as server:
        assert run(*asking(server, "--explain")) == 0
        assert run.out.startswith("Ada Venn\n\nby small; version 1, ")
        assert "    Text 1 says who paid.\n" in run.out
        found = run.json(*asking(server, "--token-budget", 12))
        assert {one.headers["authorization"] for one in server.chats} == {f"Bearer {CANARY}"}
    assert (found["answer"], found["found"], found["model"]) == ("Ada Venn", True, "small")
    assert 0 < found["context_tokens"] <= 12
    assert found["input_tokens"] > 0


def test_the_model_of_the_configuration_is_asked_and_options_win(run: Run, here: Path) -> None:
    (here / "key").write_text("sk-from-the-file-1234\n")
    (here / "key").chmod(0o600)
    with LlmServer(lambda chat: SAID) as server:
        configure(here, backend="openai", model="of-file", base_url=server.base_url, api_key_file="key", concurrency=3)
        assert run.json("answer", QUESTION)["model"] == "of-file"
        assert run.json("answer", QUESTION, "--model", "mine", "--api-key-env", "OPENAI_API_KEY")["model"] == "mine"
        assert run.json("answer", QUESTION, "--model", "mine", "--base-url", f"{server.base_url}/")["model"] == "mine"
        assert run.json("answer", QUESTION, "--quote")["model"] is None
        keys = [one.headers["authorization"] for one in server.chats]
        (here / "key").chmod(0o644)
        assert run("answer", QUESTION) == 0
        assert run.err.startswith("caution: ")
        assert run.err.endswith("chmod 600 key\n")
    assert keys == ["Bearer sk-from-the-file-1234", f"Bearer {CANARY}", f"Bearer {CANARY}"]


@pytest.mark.parametrize(
    ("llm", "options", "message"),
    [
        ({"backend": "extractive"}, ("--base-url", "http://localhost:1/v1"), "--api-key-env require --model"),
        ({"backend": "openai", "model": "m"}, ("--quote", "--model", "m"), "--quote uses no model"),
        ({"backend": "openai"}, (), "llm.model"),
        ({"backend": "openai", "model": "m", "timeout_seconds": "soon"}, (), "llm.timeout_seconds"),
        ({"backend": "openai", "model": "m", "base_url": "ftp://x"}, (), "llm.base_url"),
        ({"backend": "openai", "model": "m", "api_key_env": "ABSENT_KEY"}, (), "ABSENT_KEY"),
        ({}, ("--token-budget", "1"), "token_budget is 1"),
    ],
)
def test_what_cannot_work_ends_with_2_and_one_line(
    run: Run, here: Path, llm: dict[str, Any], options: tuple[str, ...], message: str
) -> None:
    configure(here, **llm)
    assert run("answer", QUESTION, *options) == 2
    assert message in run.err
    assert run.err.count("\n") == 1
    assert run.out == ""


def test_an_endpoint_that_does_not_answer_ends_with_1_and_shows_no_secret(run: Run, here: Path) -> None:
    with LlmServer(lambda chat: SAID, Faults(rule=lambda received: "422")) as server:
        assert run(*asking(server, "--debug")) == 1
    assert "answered 422" in run.err
    assert CANARY not in run.err + run.out
    assert run.out == ""


def test_nothing_found_and_an_answer_that_would_command_the_terminal(run: Run, here: Path) -> None:
    assert run("answer", "  ") == 0
    assert run.out == "Nothing was found.\n"
    publish(here / "other", {"p": (Text("a", "T\x1b[2J", "one \x1b]0;owned\x07 two"),)})
    with LlmServer(lambda chat: {**SAID, "answer": "\x1b[2Jyes"}) as server:
        assert run(*asking(server, "--explain", "--store", here / "other")) == 0
    assert "\x1b" not in run.out
    assert "yes" in run.out


def test_what_takes_long_is_said_on_standard_error(run: Run, here: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    faults = Faults(by_number={1: "429-seconds", 2: "slow"}, retry_after=3.0, slow_seconds=0.5)
    monkeypatch.setattr(waiting, "MOMENT", 1.0)
    with LlmServer(lambda chat: SAID, faults) as server:
        assert run(*asking(server, "--json")) == 0
        assert json.loads(run.out)["answer"] == "Ada Venn"  # standard output has one object
        again, started = (line for line in run.err.splitlines() if "small" in line)
        assert again.startswith("waiting to ask small again: ")
        assert started.startswith("asking small at 127.0.0.1:")
        assert CANARY not in run.err
    monkeypatch.setattr(waiting, "MOMENT", 60.0)
    with LlmServer(lambda chat: SAID) as server:
        assert run(*asking(server)) == 0
        assert run.err == ""


def test_a_terminal_has_one_line_that_goes_away(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiting, "MOMENT", 0.05)
    monkeypatch.setattr(sys.stderr, "isatty", lambda: True, raising=False)
    with waiting.Waiting("retrieving") as one:
        time.sleep(0.3)
        one.say("asking small")
        time.sleep(0.3)
    out, err = capsys.readouterr()
    assert out == ""
    assert "\n" not in err
    assert re.search(r"\r\x1b\[K(\x1b\[2m)?. retrieving, 0 s", err)
    assert "asking small, " in err
    assert err.endswith("\r\x1b[K")


def test_the_advice_about_an_answer_that_was_cut_off_names_an_option_that_is_read(run: Run, here: Path) -> None:
    with LlmServer(lambda chat: SAID, Faults(rule=lambda received: "truncated")) as server:
        assert run(*asking(server)) == 1
        assert "--max-output-tokens" in run.err
        assert run(*asking(server, "--max-output-tokens", 77)) == 1
        limits = [chat.json()["max_tokens"] for chat in server.chats]
    assert limits == [1024, 77]
