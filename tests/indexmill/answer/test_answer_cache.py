"""Answers kept in a file: what is asked again, what is not, and what the file may hold."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from indexmill import BadInput
from indexmill.answer.answer_cache import AnswerCache, CachedLlm
from indexmill.answer.answer_types import Bill
from indexmill.answer.asking import Ask
from indexmill.answer.turns import Turns
from indexmill.models.llm import Completion, Request
from indexmill.models.llm_errors import LlmForbidden, LlmUnusable

GOOD = '{"said": "Où ?"}'
SCHEMA = {"type": "object", "properties": {"said": {"type": "string"}}, "required": ["said"]}


@dataclass
class Scripted:
    """Sends its texts, or raises its errors, in turn; the last again and again."""

    script: list[str | Exception]
    model: str = "small"
    ending: str = "stop"
    sent: list[tuple[str, bool]] = field(default_factory=list)

    @property
    def fingerprint(self) -> Mapping[str, Any]:
        return {"model": self.model}

    def input_tokens(self, request: Request, correction: tuple[str, str] | None = None) -> int:
        return len(request.content)

    async def ready(self) -> None:
        pass

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        self.sent.append((request.content, correction is not None))
        await asyncio.sleep(0)
        said = self.script.pop(0) if len(self.script) > 1 else self.script[0]
        if isinstance(said, Exception):
            raise said
        return Completion(said, self.ending, 7, 3, self.model)


def request(content: str = "a", most: int = 64) -> Request:
    return Request("answer", "do", "v1", content, SCHEMA, most)


def ask(llm: Scripted, path: Path, *requests: Request) -> tuple[list[Any], Bill]:
    """What comes of some requests at once, errors included, and what the file saved."""
    kept = AnswerCache(path)
    through = CachedLlm(llm, kept)

    async def all_of_them() -> list[Any]:
        turns = Turns(8)
        asked = (Ask(through, turns, 64)(one) for one in requests)
        return await asyncio.gather(*asked, return_exceptions=True)

    return asyncio.run(all_of_them()), kept.savings


def test_an_answer_is_paid_once_whoever_asks_and_whenever(tmp_path: Path) -> None:
    llm, path = Scripted([GOOD]), tmp_path / "kept"
    found, saved = ask(llm, path, request(), request(), request("b"))
    assert found == [{"said": "Où ?"}] * 3
    assert sorted(llm.sent) == [("a", False), ("b", False)]
    assert saved == (1, 7, 3)
    assert ask(llm, path, request(), request("b")) == (found[:2], (2, 14, 6))
    assert len(llm.sent) == 2
    assert len(AnswerCache(path)) == 2
    assert "do" not in [value for line in path.read_text("utf-8").splitlines() for value in json.loads(line).values()]


def test_another_prompt_length_or_model_is_another_answer(tmp_path: Path) -> None:
    llm, path = Scripted([GOOD]), tmp_path / "kept"
    ask(llm, path, request())
    ask(llm, path, request("b"), request(most=65))
    ask(Scripted([GOOD], "large"), path, request())
    assert (len(llm.sent), len(AnswerCache(path))) == (3, 4)


def test_what_cannot_be_used_is_asked_again_and_a_repaired_answer_is_kept_whole(tmp_path: Path) -> None:
    path = tmp_path / "kept"
    (failed,), _ = ask(Scripted(["no JSON"]), path, request())
    assert isinstance(failed, LlmUnusable)
    ask(Scripted([GOOD], ending="length"), path, request())
    assert len(AnswerCache(path)) == 0
    llm = Scripted(["no JSON", GOOD])
    ask(llm, path, request())
    assert llm.sent == [("a", False), ("a", True)]
    assert ask(llm, path, request()) == ([{"said": "Où ?"}], (1, 7, 3))
    assert len(llm.sent) == 2


def test_where_the_first_of_two_fails_the_other_is_sent(tmp_path: Path) -> None:
    llm = Scripted([LlmForbidden("no key"), GOOD])
    found, saved = ask(llm, tmp_path / "kept", request(), request())
    assert isinstance(found[0], LlmForbidden)
    assert (found[1], saved.calls, len(llm.sent)) == ({"said": "Où ?"}, 0, 2)


@pytest.mark.parametrize("cut", [1, 5, 40, -2, -1])
def test_a_line_that_was_cut_off_is_asked_again(tmp_path: Path, cut: int) -> None:
    llm, path = Scripted([GOOD]), tmp_path / "kept"
    ask(llm, path, request(), request("b"))
    first, second = path.read_bytes().splitlines()
    path.write_bytes(first + b"\n" + second[:cut])
    ask(llm, path, request(), request("b"))
    assert llm.sent[2:] == [("b", False)]
    ask(llm, path, request(), request("b"))
    assert len(llm.sent) == 3


def test_a_whole_line_without_its_end_is_kept(tmp_path: Path) -> None:
    llm, path = Scripted([GOOD]), tmp_path / "kept"
    ask(llm, path, request())
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    ask(llm, path, request(), request("b"))
    assert [content for content, _ in llm.sent] == ["a", "b"]
    assert len(AnswerCache(path)) == 2


@pytest.mark.parametrize(
    "line",
    [
        b'{"id": "q1"}',
        b"[]",
        b"text",
        b"\xff",
        b'{"input_tokens":true,"key":"k","model":"","output_tokens":1,"text":""}',
    ],
)
def test_another_file_is_refused_and_left_as_it_is(tmp_path: Path, line: bytes) -> None:
    path = tmp_path / "other"
    path.write_bytes(b"\n" + line)
    with pytest.raises(BadInput, match=r"other:2: is not a cached answer"):
        AnswerCache(path)
    assert path.read_bytes() == b"\n" + line


def test_a_place_that_cannot_be_written_is_refused_before_anybody_is_asked(tmp_path: Path) -> None:
    with pytest.raises(BadInput, match="cannot be cached there"):
        AnswerCache(tmp_path)
    with pytest.raises(BadInput, match="cannot be cached there"):
        AnswerCache(tmp_path / "no" / "kept")
