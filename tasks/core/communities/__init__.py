"""Attributed communities as pure code over arrays (ArchRAG, section 3.1.2, Algorithm 1).

graph        nodes with ids and unit vectors, and links between them; the graph whose nodes are communities
augment      links by content: knn, codicil, none; weights of links
leiden       communities of high modularity, from scratch or from an earlier membership
measures     modularity, and the quality of communities: CHI and Sim (eqs. 5 and 6)
clusterings  communities by the ids of their nodes, as stages store them; their ids and levels

Leiden gives a label per node of a `Weighted` graph: 0, 1, ... in the order of the first node of each community. Nodes
are in the order of their ids, so every result is a function of the set of nodes.
"""
