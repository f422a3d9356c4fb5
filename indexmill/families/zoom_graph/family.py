"""zoom_graph: documents and entities walked first, then the sentences of the best documents (ZoomRAG)."""

from indexmill.retrieve.reader_family import AnsweringOption, Fusion, ReaderFamily

FAMILY = ReaderFamily(
    name="zoom_graph",
    retriever="indexmill.families.zoom_graph.retriever:ZoomGraphReader",
    parameters="indexmill.families.zoom_graph.parameters:ZoomGraphParameters",
    packs="indexmill.families.zoom_graph.schema:PACKS",
    artifacts=(
        "document_vectors",
        "document_links",
        "entity_links",
        "mention_links",
        "entities",
        "names",
        "sentences",
    ),
    fusion=Fusion(weight=0.6, place=1, floor=0.05, from_passages=True),  # few documents rank well, the rest hardly
    answering="indexmill.families.zoom_graph.answering:KeptSentences",
    answering_options=(
        AnsweringOption(
            "--whole-passages",
            "read",
            "the model reads whole passages instead of their kept sentences.",
            value="passage",
            shapes_texts=True,
        ),
    ),
    distributions="indexmill.families.zoom_graph.distributions",
)
