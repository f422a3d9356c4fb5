"""How the texts of one kind are written: what a language model is asked, how an answer is read, and what else there is.

`tasks.core.writer.Writer` declares which prompt asks for a kind of text and what determines it. A `TextWriter` writes
the texts on a worker: by the language model, or, where there is none or it gives no usable answer, of the words that
there are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from indexmill.models.llm import Request
from storage.protocol import Store
from tasks.core.estimate import LlmUse, Range
from tasks.core.request_estimate import foreseen
from tasks.core.run import Run
from tasks.core.stage import Part, Settings, Stage, worker_arg
from tasks.core.writer import BoundWriter, Writer
from tasks.llm.ask import Answer, Asking, ask
from tasks.llm.prompts import Prompt
from tasks.stages.write.summarise import Extractive, most_output, text_request

__all__ = ["TextWriter", "WriterSettings", "Written", "worker_settings"]

I = TypeVar("I")  # noqa: E741 - an item: what one text is written of
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WriterSettings(Settings, ABC):
    """What a worker needs to write texts, and no key may depend on. prompt: None where no model is asked."""

    opening: Mapping[str, Any] = worker_arg()
    language: str = worker_arg()
    asking: Asking = worker_arg()
    prompt: Prompt | None = worker_arg()

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """What determines the texts beside what they are written of. `tokens`: how long a text is, about."""


def worker_settings(run: Run, stage: Stage[Any], writer: BoundWriter) -> dict[str, Any]:
    """The fields of `WriterSettings` but `opening`, by name."""
    asking = run.asking(stage.name)
    return {"language": run.configuration.split.language, "asking": asking, "prompt": writer.prompt}


@dataclass(frozen=True)
class Written(Generic[T]):
    """The text of each item, whether a fallback stands in for the model's, and counts of what the model was asked."""

    texts: Sequence[T]
    fallbacks: Sequence[bool]
    counts: Mapping[str, int]


class TextWriter(ABC, Generic[I, T]):
    """Writes one kind of text. I: what a text is written of; T: the text, parsed.

    declared: what the pipeline knows of the kind. answer_schema: the JSON schema of an answer. writer: the
    fingerprint. tokens: of a text, about. prompt: None where no model is asked; `fallback` writes all texts then.
    """

    declared: ClassVar[Writer]
    answer_schema: ClassVar[Mapping[str, Any]]

    def __init__(self, settings: WriterSettings) -> None:
        self.writer = settings.fingerprint
        self.tokens: int = self.writer["tokens"]
        self.prompt, self.asking = settings.prompt, settings.asking
        self.extractive = Extractive(self.tokens, settings.language)

    # What a subclass says.

    @abstractmethod
    def key_of(self, item: I) -> str:
        """What a text is known by: the hash of all that it is written of."""

    @abstractmethod
    def content(self, item: I) -> Sequence[str]:
        """The texts that the model reads, as data."""

    @abstractmethod
    def about(self, item: I) -> Sequence[str]:
        """The ids that these texts come from."""

    @abstractmethod
    def parse(self, answer: Mapping[str, Any]) -> T | None:
        """The text in an answer that fits the schema; None where it says nothing."""

    @abstractmethod
    def fallback(self, item: I) -> T:
        """The text of an item without a model, or without a usable answer of it."""

    def load(self, items: Sequence[I]) -> None:
        """Read what the methods above need beside these items; called before them."""

    def own(self, item: I) -> T | None:
        """The text of an item for which nothing is asked even where there is a model; None for the others."""
        return None

    @property
    def most_output(self) -> int:
        """The tokens of an answer at most."""
        return most_output(self.tokens)

    @property
    def numbers(self) -> Mapping[str, int]:
        """The numbers that the prompt names `{so}`, beside `{words}`."""
        return {}

    # What all have in common.

    def request(self, item: I) -> Request:
        """What the model is asked for the text of an item."""
        assert self.prompt is not None  # noqa: S101 - nothing is asked without one
        return text_request(
            self.declared.task,
            self.prompt,
            self.content(item),
            self.answer_schema,
            tokens=self.tokens,
            about=self.about(item),
            makes=self.key_of(item),
            output=self.most_output,
            **self.numbers,
        )

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
