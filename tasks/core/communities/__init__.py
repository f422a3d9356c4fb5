"""Attributed communities, level by level, as pure code over arrays (ArchRAG, section 3.1.2, Algorithm 1).

graph      nodes with ids and unit vectors, and links between them; the graph of the communities of a graph
augment    links by content: knn, codicil, none; weights of links
leiden     communities of high modularity, from nothing or from an earlier membership
spectral, scan, node2vec   the paper's other clusterings
kmeans     rows around centres, for spectral and node2vec
measures   modularity, and the quality of communities: CHI and Sim (eqs. 5 and 6)
levels     the loop over levels

A clustering is a function of a `Weighted` graph and gives a label per node: 0, 1, ... in the order of the first node
of each community. Nodes are in the order of their ids, so every result is a function of the set.
"""
