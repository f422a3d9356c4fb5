"""What a writer of texts is to a worker: how it asks for one, how it reads an answer, and what it writes without one.

`tasks.core.writer.Writer` declares which prompt asks for a kind of text and what determines it. A `TextWriter` writes
them: by the language model, or, where there is none or it gives no usable answer, of the words that there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from indexmill.models.llm import Request
from storage.protocol import Store
from tasks.core.estimate import LlmUse, Range
from tasks.core.request_estimate import foreseen
from tasks.core.stage import Part, Settings, worker_arg
from tasks.llm.ask import Answer, Asking, ask
from tasks.llm.prompts import Prompt

__all__ = ["TextWriter", "WriterSettings", "Written"]

I = TypeVar("I")  # noqa: E741 - an item: what one text is written of
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WriterSettings(Settings):
    """What a worker needs to write texts, and no key may depend on. prompt: None where no model is asked."""

    opening: Mapping[str, Any] = worker_arg()
    language: str = worker_arg()
    asking: Asking = worker_arg()
    prompt: Prompt | None = worker_arg()


@dataclass(frozen=True)
class Written(Generic[T]):
    """The text of each item, whether a fallback stands in for the model's, and counts of what the model was asked."""

    texts: Sequence[T]
    fallbacks: Sequence[bool]
    counts: Mapping[str, int]


class TextWriter(ABC, Generic[I, T]):
    """Writes one kind of text. I: what a text is written of; T: the text, parsed.

    prompt: None where no model is asked; `fallback` writes all of them then.
    """

    prompt: Prompt | None
    asking: Asking

    def load(self, items: Sequence[I]) -> None:
        """Read what `request` and `fallback` need beside these items; called before them."""

    @abstractmethod
    def request(self, item: I) -> Request:
        """What the model is asked for the text of an item."""

    @abstractmethod
    def parse(self, answer: Mapping[str, Any]) -> T | None:
        """The text in an answer that fits the schema; None where it says nothing."""

    @abstractmethod
    def fallback(self, item: I) -> T:
        """The text of an item without a model, or without a usable answer of it."""

    def own(self, item: I) -> T | None:
        """The text of an item for which nothing is asked even where there is a model; None for the others."""
        return None

    def requests(self, items: Sequence[I]) -> list[Request]:
        """What the model is asked for some items; nothing where there is none."""
        if self.prompt is None:
            return []
        self.load(items)
        return [self.request(item) for item in items if self.own(item) is None]

    def write(self, part: Part[Any], items: Sequence[I]) -> Written[T]:
        """Write the text of each item."""
        if not items:
            return Written([], [], {})
        own = [self.own(item) for item in items]
        if self.prompt is None:
            self.load(items)
            texts = [self.fallback(item) if text is None else text for item, text in zip(items, own, strict=True)]
            return Written(texts, [False] * len(items), {})
        asked = ask(part.store, self.asking, self.requests(items), run_id=part.job.run_id)
        answers = iter([self.parse(one.value) if isinstance(one, Answer) else None for one in asked.results])
        found = [next(answers) if text is None else text for text in own]
        texts = [self.fallback(item) if text is None else text for item, text in zip(items, found, strict=True)]
        return Written(texts, [text is None for text in found], asked.counts)

    def use(self, store: Store, items: Sequence[I]) -> tuple[LlmUse, ...]:
        """What the model will be asked for some items: those of its answers that the ledger holds cost nothing."""
        return () if self.prompt is None else (foreseen(store, self.asking, self.requests(items)),)

    def planned_use(
        self, store: Store, items: Range, *, task: str, told: Range, more: int, answer: int, times: int = 1
    ) -> tuple[LlmUse, ...]:
        """Bounds of what the model will be asked for so many items of which none is known yet.

        The ledger may have answers to all of it. told: the tokens of all texts that are told in the questions; more:
        those that delimit them in one, and of the schema; answer: of one, at most. times: how often one item may be
        asked about: twice, where the repair of an answer counts.
        """
        if self.prompt is None:
            return ()
        instructions = len(self.prompt[0])
        low, least = (0, 0) if store.list("ledger/") else (items.low, told.low)
        each = instructions // 2 + more + (times - 1) * answer
        return (
            LlmUse(
                model=str(self.asking.settings.model),
                calls=Range(low, times * items.high),
                input_tokens=Range(low * (instructions // 8) + least, times * (items.high * each + told.high)),
                output_tokens=Range(low, times * items.high * answer),
                tasks=(task,),
                prompts=Range(items.low, items.high),
            ),
        )
