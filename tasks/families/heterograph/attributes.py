"""Stage `attributes`: the texts about a shard's important entities, and their vectors (NodeRAG, section 2.3).

An attribute is a portrait of an important entity, made from the units and relations around it, not from raw text
(appendix E, the prompt for attributes); `tasks.families.heterograph.reading` selects them.

attributes          HETERO_ATTRIBUTES; published
attribute_vectors   text_keys (n, 16) uint8 and vectors (n, d) float32, in the order of the table's rows; published
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.families.heterograph.schema import ATTRIBUTE_VECTORS
from schemas.config import Configuration
from tasks.core.encoder_estimate import texts_to_come
from tasks.core.estimate import Estimate, Expected, Range, RowRange, new_rows
from tasks.core.stage import Input, Output, Part, Stage
from tasks.core.writer import Writer
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.tables import HETERO_ATTRIBUTES, HETERO_MADE, HETERO_READ
from tasks.families.heterograph.texts import lines, sentence
from tasks.families.heterograph.writing import ReadTexts, TextSettings
from tasks.llm.prompts import Prompt
from tasks.stages.write.summarise import fingerprint, plain
from tasks.stages.write.written_rows import Row

_VERSION = 1
"""The version of `fallback` and `parse`: raise it whenever they change attributes."""


def _fingerprint(configuration: Configuration, prompt: Prompt | None) -> dict[str, Any]:
    settings = configuration.families.heterograph
    more = {"input_tokens": settings.input_tokens, "attribute": _VERSION}
    return fingerprint(configuration, prompt, settings.attribute_tokens, **more)


WRITER = Writer(
    "attribute", "attributes", _fingerprint, lambda configuration: configuration.families.heterograph.enabled
)


class _Attributes(ReadTexts[str]):
    declared = WRITER
    table, schema, vectors = "attributes", HETERO_ATTRIBUTES, "attribute_vectors"

    def content(self, item: Read) -> list[str]:
        return [item.shown, *(lines(item.of(kind), self.writer["input_tokens"]) for kind in "SR")]

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """Return the attribute as plain text on one line; None if it is empty."""
        return plain(str(answer["attribute"]), 2 * self.tokens) or None

    def fallback(self, item: Read) -> str:
        """Return central sentences of the units and relations, after the entity's name if they lack it."""
        text = self.extractive.summary([*item.of("S"), *map(sentence, item.of("R"))])
        return text if item.shown.casefold() in text.casefold() else f"{item.shown}: {text}"

    def rows_of(self, item: Read, text: str) -> list[Row]:
        return [{"text": text}]

    def placed(self, item: Read, row: Row) -> Row:
        """Add the ids of the row's entity; a reused row may come from a different entity."""
        return {**row, "attribute_id": node_id("attribute", item.owner), "entity_id": item.owner}


def estimate(part: Part[TextSettings], expected: Expected) -> Estimate:
    """Estimate the attributes, and the model use for those that no earlier part contains."""
    attributes = _Attributes(part)
    count, missing = len(attributes.items), attributes.missing
    rows = RowRange(count, count, Range.exactly(len(missing)))
    return Estimate(rows={"attributes": rows}, llm=attributes.use(part.store, missing))


STAGE = Stage(
    "attributes",
    version=2,
    compute=lambda part: _Attributes(part).compute(),
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_Attributes.requests_of,
    inputs=(
        Input("read", HETERO_READ, output="attribute_read"),
        Input("made", HETERO_MADE, output="attribute_made"),
    ),
    outputs=(
        Output("attributes", HETERO_ATTRIBUTES, artifact="attributes/{label}"),
        Output("attribute_vectors", ATTRIBUTE_VECTORS, artifact="attribute_vectors/{label}"),
    ),
    uses_encoder=True,
    encodes=lambda part, expected: texts_to_come(part, new_rows(estimate(part, expected).rows["attributes"])),
)
