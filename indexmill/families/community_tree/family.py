"""community_tree: attributed communities over the entities that a language model extracts (ArchRAG)."""

from indexmill.retrieve.reader_family import (
    TOKEN_BUDGET,
    AnsweringOption,
    Fusion,
    Option,
    ReaderFamily,
    Statistics,
    View,
)

FAMILY = ReaderFamily(
    name="community_tree",
    retriever="indexmill.families.community_tree.retriever:CommunityTreeReader",
    parameters="indexmill.families.community_tree.parameters:CommunityTreeParameters",
    packs="indexmill.families.community_tree.schema:PACKS",
    artifacts=("community_tree/tree", "community_tree/index", "described", "related", "communities", "names"),
    fusion=Fusion(weight=1.0, place=5, half_led=True),
    answering="indexmill.families.community_tree.answering:AdaptiveFiltering",
    options=(
        TOKEN_BUDGET,
        Option("k_level", "Number of nodes to find on every level.", metavar="K", least=1, most=1000),
        Option(
            "levels",
            "Number of community levels to search, from the lowest up; 0 for entities only.",
            metavar="L",
            least=0,
        ),
        Option("passages", "Maximum number of passages among the hits.", metavar="P", least=0),
    ),
    answering_options=(
        AnsweringOption(
            "--level-tokens", "level_tokens", "maximum number of tokens in the prompt about one level.", metavar="T"
        ),
        AnsweringOption("--direct", "filtered", "one prompt with all hits instead of one per level.", value=False),
    ),
    query_help="""--method community_tree also finds entities and their communities: `--passages 0 -k 25` gives the 5
    nearest on each of 5 levels.""",
    view=View(
        "--communities",
        "indexmill.families.community_tree.show",
        help="Draw the communities of community_tree, from the roots down.",
        show_help="""With --communities, the hierarchy of community_tree: every community with its title, its rating and
        the number of entities under it.""",
    ),
    statistics=Statistics("communities", "indexmill.families.community_tree.show", evaluated=True),
    tables={"units": "unit_id", "relations": "relation_id", "communities": "community_id"},
    provides={
        "communities": "indexmill.families.community_tree.rows:CommunityRows",
        "hierarchy": "indexmill.families.community_tree.hierarchy:Hierarchy",
    },
    forms={"graphrag": "indexmill.families.community_tree.graphrag"},
    written={"reports": "communities"},
    vectors={
        "described": "indexmill.families.community_tree.vectors:described",
        "communities": "indexmill.families.community_tree.vectors:communities",
    },
    distributions="indexmill.families.community_tree.distributions",
)
