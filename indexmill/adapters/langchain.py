"""An index as a LangChain retriever; needs ``indexmill[langchain]``."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from pydantic import Field, SkipValidation, model_validator

from indexmill.adapters.retrieval import FrameworkDocument, IndexRetrieval, RetrievalIndex
from indexmill.extras import not_installed

try:
    from langchain_core.callbacks import AsyncCallbackManagerForRetrieverRun, CallbackManagerForRetrieverRun
    from langchain_core.documents import Document
    from langchain_core.retrievers import BaseRetriever
except ImportError as error:
    raise not_installed("indexmill.adapters.langchain", "langchain_core", error) from error


class IndexmillRetriever(BaseRetriever):
    """Retrieves documents from an opened index: ``IndexmillRetriever(index=snapshot, k=3, method="dense")``.

    index: an index from ``indexmill.open`` or ``indexmill.follow``; the caller closes it. k: the number of documents.
    Other arguments are options of ``Snapshot.retrieve``; arguments of ``invoke`` apply to one question:
    ``retriever.invoke(question, where={"year": 2024})``. A document has the hit's id, and the metadata that
    ``indexmill.adapters.retrieval.FrameworkDocument`` describes. Raises BadInput as ``IndexRetrieval`` does.
    """

    index: SkipValidation[RetrievalIndex] = Field(repr=False)
    k: int = 5
    options: dict[str, Any] = Field(default_factory=dict)
    """Options of ``Snapshot.retrieve``; arguments that are not fields are collected here."""

    @model_validator(mode="before")
    @classmethod
    def _gather(cls, arguments: object) -> object:
        if not isinstance(arguments, Mapping):  # already a retriever
            return arguments
        fields = {name: value for name, value in arguments.items() if name in cls.model_fields}
        others = {name: value for name, value in arguments.items() if name not in cls.model_fields}
        return {**fields, "options": {**fields.get("options", {}), **others}}

    @model_validator(mode="after")
    def _check(self) -> IndexmillRetriever:
        self._retrieval()
        return self

    def _retrieval(self) -> IndexRetrieval:
        return IndexRetrieval(self.index, {"k": self.k, **self.options})

    def _get_relevant_documents(
        self, query: str, *, run_manager: CallbackManagerForRetrieverRun, **changes: Any
    ) -> list[Document]:
        return _documents(self._retrieval().ask(query, **changes))

    async def _aget_relevant_documents(
        self, query: str, *, run_manager: AsyncCallbackManagerForRetrieverRun, **changes: Any
    ) -> list[Document]:
        return _documents(await self._retrieval().ask_async(query, **changes))


def _documents(hits: list[FrameworkDocument]) -> list[Document]:
    return [Document(id=hit.id, page_content=hit.text, metadata=hit.metadata) for hit in hits]
