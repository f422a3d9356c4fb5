"""lsh_tree: summaries of segments of passages, layer upon layer (EraRAG)."""

from indexmill.retrieve.reader_family import TOKEN_BUDGET, Fusion, Option, ReaderFamily, View

FAMILY = ReaderFamily(
    name="lsh_tree",
    retriever="indexmill.families.lsh_tree.retriever:LshTreeReader",
    parameters="indexmill.families.lsh_tree.parameters:LshTreeParameters",
    packs="indexmill.families.lsh_tree.schema:PACKS",
    artifacts=("lsh_tree/tree", "summaries", "summary_vectors", "sentences"),
    fusion=Fusion(weight=1.0, place=4, first_of_words=True, reads_lists=True),
    options=(
        Option(
            "pattern",
            "Retrieve the nearest nodes of both kinds, mostly passages, or mostly summaries.",
            choices=("collapsed", "detailed", "summarised"),
        ),
        Option("ratio", "With a pattern, the favoured kind's share of K.", least=0, most=1, whole=False),
        TOKEN_BUDGET,
    ),
    query_help="""--method lsh_tree also finds summaries: `--pattern detailed --ratio 0.8 -k 5` gives the 4 nearest
    passages and the nearest summary, `--pattern summarised` 4 summaries and a passage.""",
    view=View(
        "--tree",
        "indexmill.families.lsh_tree.show",
        help="Draw the summaries of lsh_tree, from the roots down.",
        show_help="""With --tree, the hierarchy of lsh_tree instead: every summary with the number of passages under
        it and its first words.""",
    ),
    tables={"summaries": "node_id"},
    written={"llm": "summaries"},
    vectors={"summaries": "indexmill.families.lsh_tree.vectors:summaries"},
    distributions="indexmill.families.lsh_tree.distributions",
)
