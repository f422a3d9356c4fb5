"""What all writers of texts have in common: who is asked, what stands in for an answer, and what a plan expects."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from indexmill.models.llm import Request
from schemas.config import LlmSettings
from storage.folder import init_store
from tasks.core.estimate import Range
from tasks.core.stage import Job, Part, Stage
from tasks.llm.ask import Asking
from tasks.llm.prompts import Prompt
from tasks.llm.quota import NoQuota
from tasks.stages.write.summarise import text_request, text_schema
from tasks.stages.write.text_writer import TextWriter


class Sayings(TextWriter[str, str]):
    """A word of two letters or fewer is a saying as it is."""

    def __init__(self, prompt: Prompt | None) -> None:
        self.prompt = prompt
        self.asking = Asking(LlmSettings(), NoQuota())
        self.loaded: list[str] = []

    def load(self, items: Sequence[str]) -> None:
        self.loaded += items

    def request(self, item: str) -> Request:
        assert self.prompt is not None
        schema = text_schema("saying")
        return text_request("saying", self.prompt, [item], schema, tokens=40, about=["a"], makes="m", verses=3)

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        return str(answer["saying"]).strip() or None

    def fallback(self, item: str) -> str:
        return f"so much for {item}"

    def own(self, item: str) -> str | None:
        return item if len(item) < 3 else None


def test_without_a_model_texts_are_fallbacks_and_none_counts_as_one(tmp_path: Path) -> None:
    store = init_store(tmp_path / "store")
    stage = Stage("sayings", version=1, compute=lambda _: None)  # type: ignore[arg-type,return-value]
    inputs = Part(store, Job("", "", "p", store.url, "run", {}, {}), stage)
    sayings = Sayings(None)
    written = sayings.write(inputs, ["or", "gold"])
    assert (written.texts, written.fallbacks, written.counts) == (["or", "so much for gold"], [False, False], {})
    assert sayings.requests(["gold"]) == []
    assert sayings.use(store, ["gold"]) == ()
    assert sayings.planned_use(store, Range(1, 2), task="saying", told=Range(0, 9), more=0, answer=1) == ()


def test_a_text_that_an_item_has_of_its_own_is_not_asked_for() -> None:
    sayings = Sayings(("In {words} words and {verses} verses.", "v1"))
    (request,) = sayings.requests(["or", "gold"])
    assert sayings.loaded == ["or", "gold"]
    assert request.instructions == "In 30 words and 3 verses."
    assert (request.task, request.prompt_version, request.about, request.makes) == ("saying", "v1", ("a",), "m")
    assert "gold" in request.content


def test_a_plan_of_items_that_are_not_known_has_bounds_with_and_without_repairs(tmp_path: Path) -> None:
    store, sayings = init_store(tmp_path / "store"), Sayings(("x" * 80, "v1"))
    items, told = Range(2, 5), Range(100, 700)
    (once,) = sayings.planned_use(store, items, task="saying", told=told, more=10, answer=30)
    assert (once.calls, once.prompts) == (items, items)
    assert once.input_tokens == Range(2 * 10 + 100, 5 * (40 + 10) + 700)
    assert once.output_tokens == Range(2, 5 * 30)
    (twice,) = sayings.planned_use(store, items, task="saying", told=told, more=10, answer=30, times=2)
    assert twice.calls == Range(2, 10)
    assert twice.input_tokens == Range(120, 2 * (5 * (40 + 10 + 30) + 700))
