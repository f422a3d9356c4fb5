"""Keys: where they come from, and that nothing shows them."""

from __future__ import annotations

import asyncio
import threading
import time
from pathlib import Path

import pytest

from indexmill.models.llm_errors import LlmForbidden
from indexmill.models.secrets import KeySource, redacted
from tests.llm_server import CANARY


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("https://user:pass@host/v1", "https://***@host/v1"),
        ("http://token@host/v1?a=b", "http://***@host/v1?a=b"),
        ("https://host/v1?api-key=abc123&x=1", "https://host/v1?api-key=***&x=1"),
        ("https://host/v1?x=1&access_token=abc123", "https://host/v1?x=1&access_token=***"),
        ("Authorization: Bearer abc.def-ghi", "Authorization: Bearer ***"),
        ("wrong key sk-proj-abcdefghijklmnop!", "wrong key ***!"),
        ("a passage about risk-taking and a task-force", "a passage about risk-taking and a task-force"),
        ("max_tokens=100&tokens=5", "max_tokens=100&tokens=5"),
    ],
)
def test_what_looks_like_a_secret_is_hidden(text: str, shown: str) -> None:
    assert redacted(text) == shown


def test_a_key_that_was_looked_up_is_hidden_whatever_it_looks_like(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", " plain/looking+key \n")
    assert "plain/looking+key" in redacted("plain/looking+key")
    assert asyncio.run(KeySource("MY_KEY").key()) == "plain/looking+key"
    assert redacted("see plain/looking+key and plain%2Flooking%2Bkey") == "see *** and ***"


def test_a_word_that_stands_for_no_key_hides_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MY_KEY", "none")
    assert asyncio.run(KeySource("MY_KEY").key()) == "none"
    assert redacted("none of it") == "none of it"


@pytest.mark.parametrize("held", ["", " \n", f"{CANARY}\nanother", f"two {CANARY}", f"{CANARY}\x00", "schlüssel"])
def test_a_key_that_no_header_can_carry_is_refused_without_showing_it(held: str, tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(held, encoding="utf-8")
    with pytest.raises(LlmForbidden, match=r"llm\.api_key_file") as refused:
        KeySource(file=path).check()
    assert CANARY not in str(refused.value)
    assert "schl" not in str(refused.value)


def test_a_key_in_the_place_of_the_variables_name_is_not_repeated() -> None:
    with pytest.raises(LlmForbidden) as refused:
        KeySource("abcdef0123456789abcdef").check()
    assert "abcdef" not in str(refused.value)


def test_a_key_file_that_others_may_read_is_told(tmp_path: Path) -> None:
    path = tmp_path / "key"
    path.write_text(CANARY, encoding="utf-8")
    path.chmod(0o644)
    (said,) = KeySource(file=path).cautions("https://host/v1")
    assert f"chmod 600 {path}" in said
    path.chmod(0o600)
    assert KeySource(file=path).cautions("https://host/v1") == []


@pytest.mark.parametrize(
    ("url", "unwise"),
    [
        ("https://host/v1", False),
        ("http://localhost:8000/v1", False),
        ("http://127.0.0.1:8000/v1", False),
        ("http://[::1]:8000/v1", False),
        ("http://user:word@model.example/v1", True),
    ],
)
def test_a_key_that_travels_in_the_open_is_told(url: str, unwise: bool) -> None:
    said = KeySource().cautions(url)
    assert bool(said) == unwise
    assert "word" not in "".join(said)


RELEASED = threading.Event()


def never_returns() -> str:
    """A token provider that hangs."""
    RELEASED.wait(60)
    return CANARY


def test_a_provider_that_hangs_holds_up_nobodys_end() -> None:
    async def looked_up() -> None:
        with pytest.raises(TimeoutError):
            await asyncio.wait_for(KeySource(provider=f"{__name__}:never_returns").key(), 0.2)

    began = time.monotonic()
    asyncio.run(looked_up())  # which waits for the threads of the loop
    assert time.monotonic() - began < 30
    RELEASED.set()
