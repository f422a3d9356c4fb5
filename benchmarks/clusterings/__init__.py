"""Clusterings of a weighted graph that Leiden is compared with (ArchRAG, section 4.3), and the loop over levels.

spectral, scan, node2vec   the paper's other clusterings
kmeans     rows around centres, for spectral and node2vec
levels     communities of nodes, then communities of those, with any clustering

A clustering is a function of a `Weighted` graph and gives a label per node: 0, 1, ... in the order of the first node
of each community, like Leiden (tasks.core.communities). They are for some tens of thousands of nodes: the time of
k-means grows with the square.
"""
