"""The shared part of the adapters: an index with its retrieval options, and hits in a neutral form."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from typing import Any, NamedTuple, Protocol, Unpack

from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.mistakes import unknown_setting
from indexmill.retrieve.retrieval_options import RetrievalKeywords, RetrievalOptions


class RetrievalIndex(Protocol):
    """An opened index: a ``Snapshot``, or a ``Follower``."""

    def retrieve(
        self, question: str, *, options: RetrievalOptions | None = None, **changes: Unpack[RetrievalKeywords]
    ) -> list[Hit]:
        """See ``Snapshot.retrieve``."""
        ...


class FrameworkDocument(NamedTuple):
    """A hit in the form of a framework's document.

    metadata: JSON values: the fields of ``Hit.to_dict`` except the id, the text, and fields that are None or an empty
    list, and the document's own metadata. Metadata whose name is also a hit's field are under ``metadata``.
    """

    id: str
    text: str
    score: float
    metadata: dict[str, Any]

    @classmethod
    def of(cls, hit: Hit) -> FrameworkDocument:
        """Convert a hit."""
        fields = hit.to_dict()
        document: dict[str, Any] = fields["metadata"]
        shown = {name: value for name, value in fields.items() if name not in ("id", "text", "metadata")}
        present = {name: value for name, value in shown.items() if value is not None and value != []}
        free = {name: value for name, value in document.items() if name not in fields}
        hidden = {name: value for name, value in document.items() if name in fields and value != present.get(name)}
        return cls(hit.id, hit.text, hit.score, present | free | ({"metadata": hidden} if hidden else {}))


class IndexRetrieval:
    """An opened index, which the caller closes, and its retrieval options.

    There are no explanations unless ``explain`` is among the options. Raises BadInput for an index that is not opened,
    or an option that ``retrieve`` does not have.
    """

    def __init__(self, index: RetrievalIndex, options: Mapping[str, Any]) -> None:
        if not callable(getattr(index, "retrieve", None)):
            raise BadInput(
                f"index is {index!r:.200}; expected an opened index: indexmill.open(...) or indexmill.follow(...)"
            )
        self._index, self._options = index, RetrievalOptions.of(None, {"explain": False, **options})

    def ask(self, question: str, **changes: Any) -> list[FrameworkDocument]:
        """Retrieve the evidence for a question, best first. changes: options for this question alone."""
        return [FrameworkDocument.of(hit) for hit in self._index.retrieve(question, options=self._options, **changes)]

    async def ask_async(self, question: str, **changes: Any) -> list[FrameworkDocument]:
        """Call ``ask`` in another thread, so that the event loop is not blocked."""
        return await asyncio.to_thread(self.ask, question, **changes)


def check_arguments(function: Callable[..., object], names: Iterable[str], *reserved: str) -> None:
    """Check the names of a function's arguments; raises BadInput for an unknown or ``reserved`` name."""
    accepted = [name for name in inspect.signature(function).parameters if name not in reserved]
    for name in names:
        if name not in accepted:
            raise BadInput(f"{name}: {unknown_setting(name, accepted)}")
