"""The minimum evidence recall of every method at 5 and 10 documents: 0.02 or 0.03 below the measured recall.

python -m benchmarks.acceptance --only recall
"""

WIKI_RECALL = {
    "fused": (0.97, 0.97),
    "tri_graph": (0.965, 0.97),
    "zoom_graph": (0.95, 0.97),
    "lsh_tree": (0.83, 0.875),
    "community_tree": (0.96, 0.97),
    "heterograph": (0.91, 0.935),
    "dense": (0.725, 0.78),
    "bm25": (0.735, 0.785),
}

TECHDOCS_RECALL = {
    "fused": (0.97, 0.97),
    "tri_graph": (0.965, 0.965),
    "zoom_graph": (0.955, 0.965),
    "lsh_tree": (0.965, 0.97),
    "community_tree": (0.945, 0.97),
    "heterograph": (0.965, 0.965),
    "dense": (0.97, 0.97),
    "bm25": (0.965, 0.965),
}
