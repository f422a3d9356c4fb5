"""Stage `elements`: the high-level elements of a group of communities, and their vectors (NodeRAG, section 2.3).

A high-level element states one theme of the whole community; its overview is a title of a few words, by which questions
find it. Elements are made from the community's units, attributes and relations, not from raw text;
`tasks.families.heterograph.reading` selects them. A model may write several elements for a community. They are reused
together, even if the community lost or gained a member that is not read.

    elements          HETERO_ELEMENTS; published
    element_vectors   text_keys (n, 16) uint8 and vectors (n, d) float32, in the order of the table's rows; published
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from indexmill.families.heterograph.schema import ELEMENT_VECTORS
from indexmill.models.llm import object_schema
from schemas.config import Configuration
from tasks.core.encoder_estimate import texts_to_come
from tasks.core.estimate import EncoderTexts, Estimate, Expected, Range, new_rows
from tasks.core.stage import Input, Output, Part, Stage
from tasks.core.writer import Writer
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.tables import HETERO_ELEMENTS, HETERO_MADE, HETERO_READ
from tasks.families.heterograph.texts import lines, sentence
from tasks.families.heterograph.writing import ReadTexts, TextSettings
from tasks.llm.answer_parsing import list_schema, prose
from tasks.llm.prompts import Prompt
from tasks.stages.write import summarise
from tasks.stages.write.summarise import fingerprint, plain
from tasks.stages.write.written_rows import Row

_VERSION = 1
"""The version of `fallback` and `parse`: raise it whenever they change elements."""

_TITLE_TOKENS = 24


def _fingerprint(configuration: Configuration, prompt: Prompt | None) -> dict[str, Any]:
    settings = configuration.families.heterograph
    more = {"input_tokens": settings.input_tokens, "element": _VERSION}
    if prompt is not None:
        more["elements"] = settings.elements
    return fingerprint(configuration, prompt, settings.element_tokens, **more)


WRITER = Writer(
    "high_level", "elements", _fingerprint, lambda configuration: configuration.families.heterograph.enabled
)


@dataclass(frozen=True)
class HighLevelElement:
    """A high-level element. title: its overview."""

    title: str
    text: str


_USUAL_COMMUNITIES, _USUAL_SOURCES = 1 / 4, 1 / 8
"""The usual number of communities with elements and tokens of their source texts, as shares of the maximum."""


def most_output(writer: Mapping[str, Any]) -> int:
    """Return the maximum number of tokens in an answer, JSON included. writer: the writer's fingerprint."""
    return 64 + int(writer["elements"]) * (summarise.most_output(writer["tokens"]) + 2 * _TITLE_TOKENS)


class _Elements(ReadTexts[list[HighLevelElement]]):
    declared = WRITER
    table, schema, vectors, several = "elements", HETERO_ELEMENTS, "element_vectors", True

    @property
    def answer_schema(self) -> Mapping[str, Any]:
        element = object_schema(title=prose(_TITLE_TOKENS), text=prose(self.tokens))
        return object_schema(elements=list_schema(self.writer["elements"], element, least=1))

    @property
    def most_output(self) -> int:
        return most_output(self.writer)

    @property
    def numbers(self) -> Mapping[str, int]:
        return {"elements": self.writer["elements"]}

    def content(self, item: Read) -> list[str]:
        return [lines(item.of(kind), self.writer["input_tokens"]) for kind in "SAR"]

    def parse(self, answer: Mapping[str, Any]) -> list[HighLevelElement] | None:
        """Return at most the requested number of elements, as single lines with distinct texts; None if none."""
        elements: dict[str, HighLevelElement] = {}
        for element in answer["elements"]:
            title, text = plain(str(element["title"]), _TITLE_TOKENS), plain(str(element["text"]), 2 * self.tokens)
            if title and text:
                elements.setdefault(text, HighLevelElement(title, text))
        return list(elements.values())[: self.writer["elements"]] or None

    def prose(self, text: list[HighLevelElement]) -> str:
        return " ".join(element.text for element in text)

    def fallback(self, item: Read) -> list[HighLevelElement]:
        """Return one element with central sentences of the texts, titled with the names that they mention most."""
        text = self.extractive.summary([*item.of("A", "S"), *map(sentence, item.of("R"))])
        return [HighLevelElement(plain(item.shown, _TITLE_TOKENS) or plain(text, _TITLE_TOKENS // 2), text)]

    def rows_of(self, item: Read, text: Sequence[HighLevelElement]) -> list[Row]:
        ids = [node_id("high_level", item.made_of, element.text) for element in text]
        return [
            {"element_id": own, "overview_id": node_id("overview", own), "title": element.title, "text": element.text}
            for own, element in zip(ids, text, strict=True)
        ]

    def placed(self, item: Read, row: Row) -> Row:
        """Add the id of the row's community; a reused row may come from a different community."""
        return {**row, "community_id": item.owner}

    def counts(self, rows: Sequence[Row]) -> dict[str, int]:
        """Count elements; the base class counts communities."""
        return {"elements": len(rows)}


def estimate(part: Part[TextSettings], expected: Expected) -> Estimate:
    """Estimate the model use for the elements: exact if the communities are known."""
    elements, planned = _Elements(part), expected.get("made")
    if planned is None:
        return Estimate(llm=elements.use(part.store, elements.missing))
    if elements.prompt is None:
        return Estimate()
    fresh = new_rows(planned)
    read = 3 * 4 * elements.writer["input_tokens"]  # bytes of three texts, each truncated
    use = elements.planned_use(
        part.store,
        fresh,
        task=WRITER.task,
        source_tokens=Range(0, fresh.high * read),
        usual=(fresh.high * _USUAL_COMMUNITIES, elements.writer["input_tokens"] * _USUAL_SOURCES),
        more=1200,  # the schema, and the delimiters of the texts
        answer=most_output(elements.writer),
        times=2,  # an answer may need a repair
    )
    return Estimate(llm=use)


def _encodes(part: Part[TextSettings], expected: Expected) -> EncoderTexts:
    """Return bounds on the number of new elements: a model may write several for a community."""
    elements, planned = _Elements(part), expected.get("made")
    fresh = new_rows(planned) if planned else Range.exactly(len(elements.missing))
    return texts_to_come(
        part, Range(fresh.low, fresh.high * (1 if elements.prompt is None else int(elements.writer["elements"])))
    )


STAGE = Stage(
    "elements",
    version=2,
    compute=lambda part: _Elements(part).compute(),
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_Elements.requests_of,
    inputs=(
        Input("read", HETERO_READ, output="element_read"),
        Input("made", HETERO_MADE, output="element_made"),
    ),
    outputs=(
        Output("elements", HETERO_ELEMENTS, artifact="elements/{label}"),
        Output("element_vectors", ELEMENT_VECTORS, artifact="element_vectors/{label}"),
    ),
    uses_encoder=True,
    encodes=_encodes,
)
