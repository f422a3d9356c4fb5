"""The heterograph of a corpus (NodeRAG, section 2, Algorithms 1 and 2).

family, steps     the declaration for the pipeline, and the drivers of the stages
graph             nodes of seven kinds and typed edges between them, made from pieces; its links (CSR)
importance        the entities that get an attribute (Algorithm 1)
texts             the texts of units and relations
reading           the nodes read for the text about an entity or a community: capped, in an order stable under edits
text_sources      the names in these nodes, and the passages that they come from
text_inputs       code shared by the stages that select nodes: attribute_inputs, element_inputs
writing           code shared by the stages that write texts: attributes, elements
community_graph   the graph in which communities are found
communities       communities of units, relations, entities and attributes
vector_edges      edges between near nodes, and from high-level elements to near nodes (Algorithm 2)
support           the passages that nodes come from, and the invariants of a finished graph
names             the words of names and overviews, for exact matching
index             the whole graph, as it is published
check             the checks before publication

The reader's side is indexmill.families.heterograph.search.
"""
