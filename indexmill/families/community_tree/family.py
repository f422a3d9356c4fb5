"""community_tree: attributed communities over the entities that a language model extracts (ArchRAG)."""

from __future__ import annotations

from indexmill.retrieve.family import TOKEN_BUDGET, AnsweringOption, Fusion, Option, ReaderFamily, Statistics, View

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
        Option("k_level", "Nodes found on every level.", metavar="K", least=1, most=1000),
        Option(
            "levels",
            "Levels of communities that are searched, from the lowest up; 0 for entities alone.",
            metavar="L",
            least=0,
        ),
        Option("passages", "Passages among the hits at most.", metavar="P", least=0),
    ),
    answering_options=(
        AnsweringOption(
            "--level-tokens", "level_tokens", "the prompt about one level has T tokens at most.", metavar="T"
        ),
        AnsweringOption(
            "--direct", "filtered", "one prompt with all hits, in place of one for each level.", value=False
        ),
    ),
    query_help="""--method community_tree finds entities and communities of them, too: `--passages 0 -k 25` gives the
    5 nearest of each of 5 levels.""",
    view=View(
        "--communities",
        "indexmill.families.community_tree.show",
        help="Draw the communities of community_tree, from the roots down.",
        show_help="""With --communities, that of community_tree: every community with its title, its rating and the
        number of entities under it.""",
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
