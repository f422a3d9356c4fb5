"""heterograph: nodes of seven kinds, from texts to overviews, walked from what a question names (NodeRAG)."""

from __future__ import annotations

from indexmill.retrieve.family import TOKEN_BUDGET, Fusion, Option, ReaderFamily, Statistics

FAMILY = ReaderFamily(
    name="heterograph",
    retriever="indexmill.families.heterograph.retriever:HeterographReader",
    parameters="indexmill.families.heterograph.parameters:HeterographParameters",
    packs="indexmill.families.heterograph.schema:PACKS",
    artifacts=("heterograph/graph", "heterograph/names", "heterograph/relations", "units", "attributes", "elements"),
    fusion=Fusion(weight=0.0, place=6, floor=1e-3),
    options=(
        TOKEN_BUDGET,
        *(
            Option(name, said, metavar="N", least=0)
            for name, said in (
                ("entries", "The nearest units, attributes and high-level elements, at which the walk begins."),
                ("texts", "Texts among the hits at most."),
                ("units", "Units that the walk adds at most."),
                ("attributes", "Attributes that the walk adds at most."),
                ("high_level", "High-level elements that the walk adds at most."),
                ("relations", "Relations that the walk adds at most."),
            )
        ),
    ),
    query_help="""--method heterograph finds units, attributes, high-level elements and relations, too: `--texts 10
    -k 60 --token-budget 3000` gives what fits of the best ten of each kind, those nearest to the question first.""",
    statistics=Statistics(
        "heterograph",
        "indexmill.families.heterograph.show",
        show_help="Of a heterograph, nodes and edges by kind, and the bytes that hold them.",
    ),
    tables={"attributes": "attribute_id", "elements": "element_id"},
    graphs={"heterograph": "indexmill.families.heterograph.graphml:heterograph"},
    written={"attributes": "attributes", "elements": "elements"},
    vectors={name: f"indexmill.families.heterograph.vectors:{name}" for name in ("units", "attributes", "elements")},
    distributions="indexmill.families.heterograph.distributions",
)
