"""An index as a LlamaIndex retriever; needs ``indexmill[llamaindex]``."""

from __future__ import annotations

import dataclasses
from typing import Any

from indexmill.adapters.retrieval import FrameworkDocument, IndexRetrieval, RetrievalIndex
from indexmill.extras import not_installed
from indexmill.hits import Hit

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
except ImportError as error:
    raise not_installed("indexmill.adapters.llamaindex", "llama_index", error) from error

_FOR_PROGRAMS = sorted({field.name for field in dataclasses.fields(Hit)} - {"title", "section", "source"})
"""The metadata that is hidden from a language model."""


class IndexmillRetriever(BaseRetriever):
    """Retrieves nodes from an opened index: ``IndexmillRetriever(snapshot, k=3, method="dense")``.

    index: an index from ``indexmill.open`` or ``indexmill.follow``; the caller closes it. options: options of
    ``Snapshot.retrieve``. A node has the hit's id, its span in the document, the document as its source if there is
    only one, and the metadata that ``indexmill.adapters.retrieval.FrameworkDocument`` describes; a language model sees
    the title, section, page, source, url, and the document's own metadata. Raises BadInput as ``IndexRetrieval`` does.
    """

    def __init__(
        self,
        index: RetrievalIndex,
        *,
        callback_manager: CallbackManager | None = None,
        verbose: bool = False,
        **options: Any,
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self._retrieval = IndexRetrieval(index, options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in self._retrieval.ask(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(hit) for hit in await self._retrieval.ask_async(query_bundle.query_str)]


def _node(evidence: FrameworkDocument) -> NodeWithScore:
    start, end = evidence.metadata.get("span", (None, None))
    documents = evidence.metadata.get("document_ids", [])
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=documents[0])} if len(documents) == 1 else {}
    node = TextNode(
        id_=evidence.id,
        text=evidence.text,
        metadata=evidence.metadata,
        start_char_idx=start,
        end_char_idx=end,
        relationships=source,
        excluded_llm_metadata_keys=_FOR_PROGRAMS,
        excluded_embed_metadata_keys=_FOR_PROGRAMS,
    )
    return NodeWithScore(node=node, score=evidence.score)
