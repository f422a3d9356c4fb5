"""The documents of small_snapshot with a heterograph over them."""

from __future__ import annotations

from pathlib import Path

from tasks.families.heterograph.graph import TypedGraph
from tests.indexmill.small_heterograph import Attribute, Element, write_heterograph
from tests.indexmill.small_snapshot import WORLD, SnapshotWriter
from tests.tasks.families.heterograph.graphs import unit

SAID = [
    [unit("The bridge crosses the river.", "marrow bridge", "ilse", says=(("marrow bridge", "crosses", "ilse"),))],
    [unit("Ada paid for it.", "ada venn", "marrow bridge", says=(("ada venn", "paid for", "marrow bridge"),))],
    [
        unit("Ada made clocks.", "ada venn"),
        unit("She was born in Tallow.", "ada venn", "tallow", says=(("tallow", "saw the birth of", "ada venn"),)),
    ],
    [unit("The river is cold.", "ilse")],
    [],
]
"""Of each passage, by its row."""

SURFACES = {"marrow bridge": "Marrow Bridge", "ilse": "Ilse", "ada venn": "Ada Venn", "tallow": "Tallow"}
TOLD = [
    Attribute("ada venn", "A clockmaker & patron.", ["Ada made clocks.", "Ada paid for it."], stand_in=True),
    Attribute("ilse", "A cold river.", ["The river is cold."]),
]
ELEMENTS = [
    Element("The valley", "A bridge over <cold> water.", ["The bridge crosses the river.", "The river is cold."]),
    Element("A patron", "Ada paid for much.", ["Ada paid for it.", "A clockmaker & patron."]),
]


def publish_world(path: Path) -> tuple[SnapshotWriter, TypedGraph]:
    """Version 1 holds the documents, version 2 their heterograph, too."""
    writer = SnapshotWriter(path)
    for label, texts in WORLD.items():
        writer.shard(label, texts)
    writer.publish(1)
    graph = write_heterograph(writer, SAID, TOLD, ELEMENTS, SURFACES)
    writer.publish(2)
    return writer, graph
