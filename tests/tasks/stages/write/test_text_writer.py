"""What all writers of texts have in common beside what `tests/contracts/test_writers.py` holds."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from storage.folder import FolderStore
from tasks.core.estimate import Range
from tasks.core.writer import Writer
from tasks.stages.write.text_writer import TextWriter, WriterSettings
from tests.tasks.making import UNASKED


class Settings(WriterSettings):
    fingerprint = {"tokens": 40}  # type: ignore[assignment]  # noqa: RUF012


class Sayings(TextWriter[str, str]):
    """A word of two letters or fewer is a saying as it is."""

    declared = Writer("saying", "sayings", lambda *_: {}, lambda _: True)
    numbers = {"verses": 3}  # type: ignore[assignment]  # noqa: RUF012

    def load(self, items: Sequence[str]) -> None:
        self.loaded = list(items)

    def key_of(self, item: str) -> str:
        return f"key of {item}"

    def content(self, item: str) -> list[str]:
        return [item]

    def about(self, item: str) -> list[str]:
        return ["a"]

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        return None

    def fallback(self, item: str) -> str:
        return ""

    def fixed_text(self, item: str) -> str | None:
        return item if len(item) < 3 else None


def sayings(prompt: str) -> Sayings:
    return Sayings(Settings(**{**UNASKED, "prompt": (prompt, "v1")}))


def test_a_text_that_an_item_has_of_its_own_is_not_asked_for() -> None:
    writer = sayings("In {words} words and {verses} verses.")
    (request,) = writer.requests(["or", "gold"])
    assert writer.loaded == ["or", "gold"]
    assert request.instructions == "In 30 words and 3 verses."
    assert (request.task, request.about, request.makes) == ("saying", ("a",), "key of gold")


def test_a_plan_of_items_that_are_not_known_has_bounds_with_and_without_repairs(store: FolderStore) -> None:
    writer = sayings("x" * 80)
    items, sources, usual = Range(2, 5), Range(100, 700), (3.0, 90.0)
    (once,) = writer.planned_use(store, items, task="saying", source_tokens=sources, usual=usual, more=10, answer=30)
    assert once.expected_prompts == 3
    assert once.usual == (3 * (80 / 4 + 90), 3 * 30 / 3)
    assert (once.calls, once.prompts) == (items, items)
    assert once.input_tokens == Range(2 * 10 + 100, 5 * (40 + 10) + 700)
    assert once.output_tokens == Range(2, 5 * 30)
    (twice,) = writer.planned_use(
        store, items, task="saying", source_tokens=sources, usual=usual, more=10, answer=30, times=2
    )
    assert twice.calls == Range(2, 10)
    assert twice.input_tokens == Range(120, 2 * (5 * (40 + 10 + 30) + 700))
