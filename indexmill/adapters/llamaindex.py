"""An index as a retriever of LlamaIndex; needs ``indexmill[llamaindex]``."""

from __future__ import annotations

import dataclasses
from typing import Any

from indexmill.adapters.retrieval import Evidence, Index, Retrieval
from indexmill.extras import not_installed
from indexmill.hits import Hit

try:
    from llama_index.core.callbacks import CallbackManager
    from llama_index.core.retrievers import BaseRetriever
    from llama_index.core.schema import NodeRelationship, NodeWithScore, QueryBundle, RelatedNodeInfo, TextNode
except ImportError as error:
    raise not_installed("indexmill.adapters.llamaindex", "llama_index", error) from error

_FOR_PROGRAMS = sorted({field.name for field in dataclasses.fields(Hit)} - {"title", "section", "source"})
"""The metadata that a language model is not shown."""


class IndexmillRetriever(BaseRetriever):
    """Retrieves nodes from an opened index: ``IndexmillRetriever(snapshot, k=3, method="dense")``.

    index: what ``indexmill.open`` or ``indexmill.follow`` returns; the caller closes it. options: those of
    ``Snapshot.retrieve``. A node has the hit's id, its place in the document, the document as its source if it is from
    one alone, and metadata as ``indexmill.adapters.retrieval.Evidence`` describes them; a language model is shown the
    title, section, page, source, url, and the document's own. Raises BadInput as ``Retrieval`` does.
    """

    def __init__(
        self, index: Index, *, callback_manager: CallbackManager | None = None, verbose: bool = False, **options: Any
    ) -> None:
        super().__init__(callback_manager=callback_manager, verbose=verbose)
        self._retrieval = Retrieval(index, options)

    def _retrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in self._retrieval.ask(query_bundle.query_str)]

    async def _aretrieve(self, query_bundle: QueryBundle) -> list[NodeWithScore]:
        return [_node(one) for one in await self._retrieval.ask_async(query_bundle.query_str)]


def _node(found: Evidence) -> NodeWithScore:
    start, end = found.metadata.get("span", (None, None))
    documents = found.metadata.get("document_ids", [])
    source = {NodeRelationship.SOURCE: RelatedNodeInfo(node_id=documents[0])} if len(documents) == 1 else {}
    node = TextNode(
        id_=found.id,
        text=found.text,
        metadata=found.metadata,
        start_char_idx=start,
        end_char_idx=end,
        relationships=source,
        excluded_llm_metadata_keys=_FOR_PROGRAMS,
        excluded_embed_metadata_keys=_FOR_PROGRAMS,
    )
    return NodeWithScore(node=node, score=found.score)
