"""The heterograph of a corpus (NodeRAG, section 2, Algorithms 1 and 2).

family            what the pipeline knows of it; steps drives its stages
graph             nodes of seven kinds and typed edges between them, from the pieces that make them; its links (CSR)
importance        the entities that get an attribute (Algorithm 1)
texts             the texts of units and relations
reading           what a text about an entity or a community is made of: capped, in an order that an edit hardly changes
sources           the names in that, and the passages that it comes from
text_inputs       what the stages that read have in common: attribute_inputs, element_inputs
writing           what the stages that write have in common: attributes, elements
community_graph   the graph that communities are found in
communities       communities of units, relations, entities and attributes
vector_edges      edges to near nodes, and from high-level elements to what they are near to (Algorithm 2)
support           the passages that nodes come from, and what must hold of a finished graph
names             the words of names and overviews, for exact matching
index             all of that as one graph, as it is published
check             what must hold of it before it is

The reader's side is indexmill.families.heterograph.search.
"""
