"""tri_graph: entities, sentences and passages, walked from the entities that a question names (LinearRAG)."""

from indexmill.retrieve.reader_family import Fusion, ReaderFamily

FAMILY = ReaderFamily(
    name="tri_graph",
    retriever="indexmill.families.tri_graph.retriever:TriGraphReader",
    parameters="indexmill.families.tri_graph.parameters:TriGraphParameters",
    artifacts=("mention_links", "entities", "names", "sentences"),
    fusion=Fusion(weight=1.0, place=0, floor=1e-3, from_passages=True),
    distributions="indexmill.families.tri_graph.distributions",
)
