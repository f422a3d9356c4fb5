"""The writer of one kind of text: requests to a language model, the parsing of answers, and the fallback.

`tasks.core.writer.Writer` declares the prompt of a kind of text and what determines the text. A `TextWriter` writes the
texts on a worker: with a language model or, without a model or a usable answer, from the source texts.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from indexmill.models.llm import Request, object_schema
from storage.protocol import Store
from tasks.core.estimate import LlmUse, Range
from tasks.core.request_estimate import foreseen, usual_tokens
from tasks.core.run import Run
from tasks.core.stage import Part, Stage, StageSettings, worker_arg
from tasks.core.writer import BoundWriter, Writer
from tasks.llm.answer_parsing import prose
from tasks.llm.ask import LlmAccess, ask
from tasks.llm.prompt_results import ModelAnswer
from tasks.llm.prompts import Prompt
from tasks.stages.write.summarise import Extractive, most_output, text_request
from tasks.stages.write.usable import is_usable

I = TypeVar("I")  # noqa: E741 - an item: the sources of one text
T = TypeVar("T")


@dataclass(frozen=True, kw_only=True)
class WriterSettings(StageSettings, ABC):
    """The settings that a worker needs to write texts; no key depends on them. prompt: None without a model."""

    opening: Mapping[str, Any] = worker_arg()
    language: str = worker_arg()
    asking: LlmAccess = worker_arg()
    prompt: Prompt | None = worker_arg()

    @property
    @abstractmethod
    def fingerprint(self) -> Mapping[str, Any]:
        """What determines a text, apart from its sources; part of its key. `tokens`: its approximate length."""


def worker_settings(run: Run, stage: Stage[Any], writer: BoundWriter) -> dict[str, Any]:
    """Return the fields of `WriterSettings` by name, except `opening`."""
    asking = run.asking(stage.name)
    return {"language": run.configuration.split.language, "asking": asking, "prompt": writer.prompt}


@dataclass(frozen=True)
class Written(Generic[T]):
    """The text of each item, and whether it is a fallback."""

    texts: Sequence[T]
    fallbacks: Sequence[bool]


class TextWriter(ABC, Generic[I, T]):
    """Writes one kind of text. I: the sources of a text; T: the parsed text.

    declared: the pipeline's declaration of the kind. writer: the
    fingerprint. tokens: the approximate length. prompt: None without a model; `fallback` then writes all texts.
    """

    declared: ClassVar[Writer]

    def __init__(self, settings: WriterSettings) -> None:
        self.writer = settings.fingerprint
        self.tokens: int = self.writer["tokens"]
        self.prompt, self.asking = settings.prompt, settings.asking
        self.extractive = Extractive(self.tokens, settings.language)

    # Defined by subclasses.

    @abstractmethod
    def key_of(self, item: I) -> str:
        """Return the key of a text: the hash of its sources."""

    @abstractmethod
    def content(self, item: I) -> Sequence[str]:
        """Return the texts that the model reads, as data."""

    @abstractmethod
    def about(self, item: I) -> Sequence[str]:
        """Return the ids of the sources of these texts."""

    @abstractmethod
    def parse(self, answer: Mapping[str, Any]) -> T | None:
        """Return the text of an answer that fits the schema; None if it is empty."""

    @abstractmethod
    def fallback(self, item: I) -> T:
        """Return the text of an item if there is no model or no usable answer."""

    def prose(self, text: T) -> str:
        """Return the prose of a parsed text, by which it is found to be usable."""
        return str(text)

    def load(self, items: Sequence[I]) -> None:
        """Read additional data that the other methods need; called before them."""

    def fixed_text(self, item: I) -> T | None:
        """Return the text of an item that needs no model; None for other items."""
        return None

    @property
    def answer_schema(self) -> Mapping[str, Any]:
        """The JSON schema of an answer: a text in a field with the task's name."""
        return object_schema(**{self.declared.task: prose(self.tokens)})

    @property
    def most_output(self) -> int:
        """The maximum tokens of an answer."""
        return most_output(self.tokens)

    @property
    def numbers(self) -> Mapping[str, int]:
        """The values of the prompt's placeholders besides `{words}`."""
        return {}

    # Common to all writers.

    def request(self, item: I) -> Request:
        """Return the request to the model for an item's text."""
        assert self.prompt is not None  # noqa: S101 - no request without a prompt
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
        """Return the requests to the model for some items; empty without a model."""
        if self.prompt is None:
            return []
        self.load(items)
        return [self.request(item) for item in items if self.fixed_text(item) is None]

    def write(self, part: Part[Any], items: Sequence[I]) -> Written[T]:
        """Write the text of each item; the part counts the calls to the model."""
        if not items:
            return Written([], [])
        fixed = [self.fixed_text(item) for item in items]
        if self.prompt is None:
            self.load(items)
            texts = [self.fallback(item) if text is None else text for item, text in zip(items, fixed, strict=True)]
            return Written(texts, [False] * len(items))
        results = ask(part.store, self.asking, self.requests(items), run_id=part.job.run_id, counts=part.counts)
        unwritten = [item for item, text in zip(items, fixed, strict=True) if text is None]
        parsed = [self.parse(result.value) if isinstance(result, ModelAnswer) else None for result in results]
        usable = [text if self._is_usable(item, text) else None for item, text in zip(unwritten, parsed, strict=True)]
        part.counts["llm_worthless"] += usable.count(None) - parsed.count(None)
        answers = iter(usable)
        new_texts = [next(answers) if text is None else text for text in fixed]
        texts = [self.fallback(item) if text is None else text for item, text in zip(items, new_texts, strict=True)]
        return Written(texts, [text is None for text in new_texts])

    def _is_usable(self, item: I, text: T | None) -> bool:
        return text is not None and is_usable(self.prose(text), self.content(item), self.tokens)

    def use(self, store: Store, items: Sequence[I]) -> tuple[LlmUse, ...]:
        """Return the expected use of the model for some items: answers in the ledger cost nothing."""
        return () if self.prompt is None else (foreseen(store, self.asking, self.requests(items)),)

    def planned_use(
        self,
        store: Store,
        items: Range,
        *,
        task: str,
        source_tokens: Range,
        usual: tuple[float, float],
        more: int,
        answer: int,
        times: int = 1,
    ) -> tuple[LlmUse, ...]:
        """Return bounds on the model's use for a number of items that do not exist yet.

        The ledger may have all the answers. source_tokens: the tokens of all source texts in the requests. usual: the
        expected number of items, and tokens of source texts per request. more: the tokens per request for delimiters
        and the schema. answer: the maximum tokens of an answer. times: the maximum number of calls per item; two if
        answers may need a repair.
        """
        if self.prompt is None:
            return ()
        instructions = len(self.prompt[0])
        low, least = (0, 0) if store.list("ledger/") else (items.low, source_tokens.low)
        each = instructions // 2 + more + (times - 1) * answer
        expected, sources = usual
        usual_input, usual_output = usual_tokens(expected * instructions, expected * answer)
        return (
            LlmUse(
                model=str(self.asking.settings.model),
                calls=Range(low, times * items.high),
                input_tokens=Range(low * (instructions // 8) + least, times * (items.high * each + source_tokens.high)),
                output_tokens=Range(low, times * items.high * answer),
                tasks=(task,),
                prompts=Range(items.low, items.high),
                guess=expected,
                usual=(usual_input + expected * sources, usual_output),
            ),
        )
