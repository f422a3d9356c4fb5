"""The heterograph of a corpus, as pure code over tables and arrays (NodeRAG, section 2, Algorithms 1 and 2).

graph        nodes of seven kinds and typed edges between them, from the pieces that make them; its links (CSR)
importance   the entities that get an attribute (Algorithm 1)
groups       communities of units, relations, entities and attributes
texts        the texts of units and relations
reading      what a text about an entity or a community is made of: capped, in an order that one edit hardly changes
sources      the passages that such a text is about
titles       the entities that the texts of a community name
attribute_writer  how an attribute is written
element_writer    how high-level elements are written
matching     the edges between high-level elements and what they are near to (Algorithm 2)
near         the edges between nodes of near vectors, in place of HNSW's base layer
support      the passages that nodes come from, and what must hold of a finished graph
names        the words of names and overviews, for exact matching

The reader's side is indexmill.families.heterograph.search.
"""
