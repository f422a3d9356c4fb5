"""The family incipits: passages by their first words."""

from __future__ import annotations

from indexmill.retrieve.reader_family import Fusion, Option, ReaderFamily, View

FAMILY = ReaderFamily(
    name="incipits",
    retriever="indexmill.families.incipits.retriever:IncipitReader",
    parameters="indexmill.families.incipits.parameters:IncipitParameters",
    packs="indexmill.families.incipits.schema:PACKS",
    artifacts=("incipits/words", "incipit_texts"),
    fusion=Fusion(weight=0.5, place=6),
    options=(Option("rarity", "How much rare first words count.", least=0, most=1, whole=False),),
    query_help="--method incipits finds passages by their first words.",
    view=View(
        "--incipits", "indexmill.families.incipits.show", help="List first words.", show_help="With --incipits, them."
    ),
    tables={"incipit_texts": "passage_id"},
    graphs={"incipits": "indexmill.families.incipits.graphml:incipits"},
)
