"""Stage `attributes`: what is written of the important entities of a shard, and its vectors (NodeRAG, section 2.3).

attributes          HETERO_ATTRIBUTES; published
attribute_vectors   text_keys (n, 16) uint8 and vectors (n, d) float32, row by row with the table; published
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from indexmill.families.heterograph.schema import ATTRIBUTE_VECTORS
from indexmill.models.llm import Request
from schemas.tables import HETERO_ATTRIBUTES, HETERO_MADE, HETERO_READ
from tasks.core.estimate import Estimate, Expected, Range, Rows
from tasks.core.stage import Input, Output, Outputs, Part, Stage
from tasks.families.heterograph.attribute_writer import extractive, parse, request
from tasks.families.heterograph.graph import node_id
from tasks.families.heterograph.reading import Read
from tasks.families.heterograph.writing import ReadTexts, TextSettings
from tasks.stages.write.written_rows import Row

__all__ = ["STAGE", "estimate"]


class _Attributes(ReadTexts[str]):
    """The attributes of the entities of a shard."""

    table, schema, vectors = "attributes", HETERO_ATTRIBUTES, "attribute_vectors"

    def request(self, item: Read) -> Request:
        """The question for an attribute."""
        assert self.prompt is not None  # noqa: S101 - nothing is asked without one
        return request(item, self.writer, self.prompt, about=self.about[item.owner])

    def parse(self, answer: Mapping[str, Any]) -> str | None:
        """The attribute."""
        return parse(answer, self.writer["tokens"]) or None

    def fallback(self, item: Read) -> str:
        """Sentences of the units and relations."""
        return extractive(item, self.extractive)

    def rows_of(self, item: Read, text: str) -> list[Row]:
        """The row of an attribute."""
        return [{"text": text}]

    def placed(self, item: Read, row: Row) -> Row:
        """The row as that of an entity: another may have had it."""
        return {**row, "attribute_id": node_id("attribute", item.owner), "entity_id": item.owner}


def _compute(part: Part[TextSettings]) -> Outputs:
    return _Attributes(part).compute()


def _requests(part: Part[TextSettings]) -> list[Request]:
    attributes = _Attributes(part)
    return attributes.requests(attributes.missing)


def estimate(part: Part[TextSettings], expected: Expected) -> Estimate:
    """How many attributes there are, and what a model is asked for those that no earlier part holds."""
    attributes = _Attributes(part)
    count, missing = len(attributes.items), attributes.missing
    rows = Rows(count, count, Range.exactly(len(missing)))
    return Estimate(rows={"attributes": rows}, llm=attributes.use(part.store, missing))


STAGE = Stage(
    "attributes",
    version=2,
    compute=_compute,
    settings=TextSettings,
    libraries=("PyStemmer", "numpy", "sentencex"),
    estimate=estimate,
    requests=_requests,
    inputs=(
        Input("read", HETERO_READ, output="attribute_read"),
        Input("made", HETERO_MADE, output="attribute_made"),
    ),
    outputs=(
        Output("attributes", HETERO_ATTRIBUTES, artifact="attributes/{label}"),
        Output("attribute_vectors", ATTRIBUTE_VECTORS, artifact="attribute_vectors/{label}"),
    ),
    uses_encoder=True,
)
