"""Export passages and their first words as a graph."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.export.graphml import Elements

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


def incipits(artifacts: Artifacts) -> tuple[Elements, Elements]:
    """Return passages and their first words as nodes, with an edge from each passage to its words."""
    table = artifacts.table("incipit_texts")
    words = pc.unique(table["incipit"])
    nodes = pa.table({"id": pa.concat_arrays([table["passage_id"].combine_chunks(), words])})
    edges = pa.table({"source": table["passage_id"], "target": table["incipit"]})
    return Elements(nodes.schema, [nodes]), Elements(edges.schema, [edges])
