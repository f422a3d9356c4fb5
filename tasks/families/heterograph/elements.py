"""Stage `elements`: the high-level elements of a group of communities, and their vectors (NodeRAG, section 2.3).

A community may have several; all of them are copied, also to a community that has lost or won a member that is not
read.

    elements          HETERO_ELEMENTS; published
    element_vectors   text_keys (n, 16) uint8 and vectors (n, d) float32, row by row with the table; published
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from indexmill.families.heterograph.schema import ELEMENT_VECTORS
from indexmill.models.llm import Request
from schemas.tables import HETERO_ELEMENTS, HETERO_MADE, HETERO_READ
from tasks.core.estimate import Estimate, Expected, Range, Rows
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.families.heterograph.element_writer import WRITER, Element, extractive, most_output, parse, request
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.writing import ReadTexts, TextSettings
from tasks.stages.write.written_rows import Row

__all__ = ["STAGE", "estimate"]


class _Elements(ReadTexts[list[Element]]):
    """The elements of the communities of a group."""

    table, schema, vectors, several = "elements", HETERO_ELEMENTS, "element_vectors", True

    def request(self, item: Read) -> Request:
        """The question for the elements of a community."""
        assert self.prompt is not None  # noqa: S101 - nothing is asked without one
        return request(item, self.writer, self.prompt, about=self.about[item.owner])

    def parse(self, answer: Mapping[str, Any]) -> list[Element] | None:
        """The elements."""
        return parse(answer, self.writer) or None

    def fallback(self, item: Read) -> list[Element]:
        """One, of sentences of what is read."""
        return [extractive(item, self.extractive)]

    def rows_of(self, item: Read, text: Sequence[Element]) -> list[Row]:
        """The rows of elements."""
        ids = [node_id("high_level", item.made_of, element.text) for element in text]
        return [
            {"element_id": own, "overview_id": node_id("overview", own), "title": element.title, "text": element.text}
            for own, element in zip(ids, text, strict=True)
        ]

    def placed(self, item: Read, row: Row) -> Row:
        """The row as that of a community: another may have had it."""
        return {**row, "community_id": item.owner}

    def counts(self, rows: Sequence[Row]) -> dict[str, int]:
        """How many elements there are; what is written counts communities."""
        return {"elements": len(rows)}


def _compute(part: Part[TextSettings]) -> Outputs:
    return _Elements(part).compute()


def _requests(part: Part[TextSettings]) -> list[Request]:
    elements = _Elements(part)
    return elements.requests(elements.missing)


def estimate(part: Part[TextSettings], expected: Expected) -> Estimate:
    """Bounds of what a model is asked for the elements: exact where the communities are known."""
    elements, planned = _Elements(part), expected.get("made")
    if planned is None:
        return Estimate(llm=elements.use(part.store, elements.missing))
    if elements.prompt is None:
        return Estimate()
    fresh = planned.fresh if isinstance(planned, Rows) else planned
    read = 3 * 4 * elements.writer["input_tokens"]  # bytes of three texts, each of which is cut
    use = elements.planned_use(
        part.store,
        fresh,
        task=WRITER.task,
        told=Range(0, fresh.high * read),
        more=1200,  # the schema, and what delimits the texts
        answer=most_output(elements.writer),
        times=2,  # an answer may need a repair
    )
    return Estimate(llm=use)


STAGE = Stage(
    "elements",
    version=2,
    compute=_compute,
    settings=TextSettings,
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_requests,
    inputs=(
        Input("read", HETERO_READ, output="element_read"),
        Input("made", HETERO_MADE, output="element_made"),
    ),
    outputs=(
        Output("elements", HETERO_ELEMENTS, artifact="elements/{label}"),
        Output("element_vectors", ELEMENT_VECTORS, artifact="element_vectors/{label}"),
    ),
    uses_encoder=True,
)
