"""An index as a Haystack component; needs ``indexmill[haystack]``."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import indexmill
from indexmill.adapters.retrieval import IndexRetrieval, RetrievalIndex, check_arguments
from indexmill.errors import BadInput
from indexmill.extras import not_installed
from indexmill.follower import Follower
from indexmill.forks import Lock
from indexmill.retrieve.filters import Condition, Filter
from indexmill.retrieve.retrieval_options import RetrievalOptions
from indexmill.snapshot import Snapshot

try:
    from haystack import Document, component, default_from_dict, default_to_dict
    from haystack.core.errors import SerializationError
except ImportError as error:
    raise not_installed("indexmill.adapters.haystack", "haystack", error) from error

_OPERATORS = {"==": "=", "in": "=", "!=": "!=", "not in": "!=", ">": ">", ">=": ">=", "<": "<", "<=": "<="}
"""Haystack's comparisons and the operators of ``where``."""


@component
class IndexmillRetriever:
    """Retrieves documents from an index, with the inputs of Haystack's own text retrievers.

    index: the folder or URL of a store, which ``warm_up`` or the first question opens and ``close`` closes; or an index
    from ``indexmill.open`` or ``indexmill.follow``, which the caller closes, and which cannot be saved with a pipeline.
    options: options of ``Snapshot.retrieve``, such as ``{"method": "dense"}``. opening: with a path, other arguments of
    ``indexmill.open``, or of ``indexmill.follow`` if ``follow`` is True, such as ``{"alias": "prod"}``. A document has
    the hit's id and score, and the metadata that ``indexmill.adapters.retrieval.FrameworkDocument`` describes. Raises
    BadInput for an unknown option, and for ``opening`` or ``follow`` with an opened index.
    """

    def __init__(
        self,
        index: str | os.PathLike[str] | RetrievalIndex,
        top_k: int = 5,
        options: dict[str, Any] | None = None,
        opening: dict[str, Any] | None = None,
        follow: bool = False,
    ) -> None:
        self._path = os.fspath(index) if isinstance(index, str | os.PathLike) else None
        self._index = None if isinstance(index, str | os.PathLike) else index
        self._top_k, self._options, self._opening, self._follow = top_k, options or {}, opening or {}, follow
        self._opened: Snapshot | Follower | None = None
        self._lock = Lock()
        RetrievalOptions.of(None, self._options)  # raises for an invalid option
        check_arguments(self._open, self._opening, "path")
        if self._index is not None:
            if opening or follow:
                raise BadInput("opening and follow apply only to the path of a store; this index is already open")
            IndexRetrieval(self._index, self._options)

    @property
    def _open(self) -> Callable[..., Snapshot | Follower]:
        return indexmill.follow if self._follow else indexmill.open

    @component.output_types(documents=list[Document])
    def run(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Retrieve the documents for a question, best first.

        filters: Haystack filters that ``where`` can express, namely comparisons joined by AND; they are combined with
        ``where``. top_k, options: apply to this question alone. Raises as ``Snapshot.retrieve`` does, and BadInput for
        other filters.
        """
        changes = {**(options or {}), **({} if top_k is None else {"k": top_k})}
        if filters:
            where = changes.get("where", self._options.get("where"))
            changes["where"] = Filter((*_conditions(filters), *(() if where is None else Filter.of(where).conditions)))
        retrieval = IndexRetrieval(self._opened_index(), {"k": self._top_k, **self._options})
        hits = retrieval.ask(query, **changes)
        return {
            "documents": [Document(id=hit.id, content=hit.text, meta=hit.metadata, score=hit.score) for hit in hits]
        }

    @component.output_types(documents=list[Document])
    async def run_async(
        self,
        query: str,
        filters: dict[str, Any] | None = None,
        top_k: int | None = None,
        options: dict[str, Any] | None = None,
    ) -> dict[str, list[Document]]:
        """Call ``run`` in another thread, so that the event loop is not blocked."""
        return await asyncio.to_thread(self.run, query, filters, top_k, options)

    def warm_up(self) -> None:
        """Open the index if it is not open."""
        self._opened_index()

    async def warm_up_async(self) -> None:
        """Call ``warm_up`` in another thread."""
        await asyncio.to_thread(self.warm_up)

    def close(self) -> None:
        """Close the index if the component opened it; a later question opens it again."""
        with self._lock:
            opened, self._opened = self._opened, None
            if opened is not None:
                self._index = None
                opened.close()

    def to_dict(self) -> dict[str, Any]:
        """Return the component as JSON values; raises SerializationError for an opened index or other live objects."""
        if self._path is None:
            raise SerializationError("an opened index cannot be saved: give IndexmillRetriever the path of its store")
        settings = {"top_k": self._top_k, "options": self._options, "opening": self._opening, "follow": self._follow}
        try:
            return default_to_dict(self, index=self._path, **json.loads(json.dumps(settings)))
        except (TypeError, ValueError) as error:
            raise SerializationError(f"IndexmillRetriever cannot be saved with these options: {error}") from error

    @classmethod
    def from_dict(cls, data: dict[str, Any]) -> IndexmillRetriever:
        """Create a component from the data of ``to_dict``."""
        return default_from_dict(cls, data)

    def _opened_index(self) -> RetrievalIndex:
        with self._lock:
            if self._index is None:
                self._index = self._opened = self._open(self._path, **self._opening)
            return self._index


def _conditions(filters: Mapping[str, Any]) -> Iterator[Condition]:
    match filters:
        case {"operator": "AND", "conditions": list(joined)}:
            for condition in joined:
                yield from _conditions(condition)
        case {"field": str(field), "operator": str(sign), "value": value} if sign in _OPERATORS and isinstance(
            value, list
        ) == sign.endswith("in"):
            yield from Filter.of({field.removeprefix("meta."): {_OPERATORS[sign]: value}}).conditions
        case _:
            raise BadInput(
                f"filters: `where` cannot express {filters!r:.200}; expected comparisons of a field with a value "
                "(in and not in: with a list), joined by AND"
            )
