"""bm25: lexical retrieval of passages, the baseline."""

from indexmill.retrieve.reader_family import Fusion, ReaderFamily

FAMILY = ReaderFamily(
    name="bm25",
    retriever="indexmill.families.bm25.retriever:Bm25",
    parameters="indexmill.retrieve.term_index:Bm25Parameters",
    packs="indexmill.families.bm25.schema:PACKS",
    artifacts=("bm25",),
    fusion=Fusion(weight=1.0, place=2, first_of_words=True, beside_reader=0.4),
    provides={"words": "indexmill.families.bm25.retriever:term_index_of"},
)
