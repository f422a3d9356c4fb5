"""heterograph: nodes of seven kinds, from texts to overviews, walked from what a question names (NodeRAG)."""

from indexmill.retrieve.reader_family import TOKEN_BUDGET, Fusion, Option, ReaderFamily, Statistics

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
            Option(name, text, metavar="N", least=0)
            for name, text in (
                ("entries", "Number of nearest units, attributes and high-level elements at which the walk begins."),
                ("texts", "Maximum number of texts among the hits."),
                ("units", "Maximum number of units that the walk adds."),
                ("attributes", "Maximum number of attributes that the walk adds."),
                ("high_level", "Maximum number of high-level elements that the walk adds."),
                ("relations", "Maximum number of relations that the walk adds."),
            )
        ),
    ),
    query_help="""--method heterograph also finds units, attributes, high-level elements and relations: `--texts 10
    -k 60 --token-budget 3000` gives the best ten of each kind, without those that do not fit, nearest to the
    question first.""",
    statistics=Statistics(
        "heterograph",
        "indexmill.families.heterograph.show",
        show_help="For a heterograph, also nodes and edges by kind, and the bytes that store them.",
    ),
    tables={"attributes": "attribute_id", "elements": "element_id"},
    graphs={"heterograph": "indexmill.families.heterograph.graphml_elements:heterograph"},
    written={"attributes": "attributes", "elements": "elements"},
    vectors={name: f"indexmill.families.heterograph.vectors:{name}" for name in ("units", "attributes", "elements")},
    distributions="indexmill.families.heterograph.distributions",
)
