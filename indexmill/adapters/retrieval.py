"""What the adapters share: an index with the options of its retrievals, and hits in a form that any framework holds."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, Protocol

from indexmill.errors import BadInput
from indexmill.hits import Hit
from indexmill.mistakes import unknown_setting
from indexmill.snapshot import Snapshot


class Index(Protocol):
    """An opened index: a ``Snapshot``, or a ``Follower``."""

    def retrieve(self, question: str, *arguments: Any, **options: Any) -> list[Hit]:
        """See ``Snapshot.retrieve``."""
        ...


class Evidence(NamedTuple):
    """A hit as frameworks hold documents.

    metadata: JSON-ready. The fields of ``Hit.to_dict``, but for the id, the text, and what is None or an empty list;
    beside them the document's own metadata; under ``metadata`` those of these whose names are fields of a hit.
    """

    id: str
    text: str
    score: float
    metadata: dict[str, Any]

    @classmethod
    def of(cls, hit: Hit) -> Evidence:
        """The evidence of a hit."""
        fields = hit.to_dict()
        document: dict[str, Any] = fields["metadata"]
        shown = {name: value for name, value in fields.items() if name not in ("id", "text", "metadata")}
        known = {name: value for name, value in shown.items() if value is not None and value != []}
        free = {name: value for name, value in document.items() if name not in fields}
        hidden = {name: value for name, value in document.items() if name in fields and value != known.get(name)}
        return cls(hit.id, hit.text, hit.score, known | free | ({"metadata": hidden} if hidden else {}))


@dataclass(frozen=True, slots=True)
class Retrieval:
    """An opened index, which the caller closes, and the options of its retrievals: those of ``Snapshot.retrieve``.

    Explanations are left out unless ``explain`` is among the options. Raises BadInput for an index that is not opened,
    or an option that ``retrieve`` does not take.
    """

    index: Index
    options: Mapping[str, Any]

    def __post_init__(self) -> None:
        if not callable(getattr(self.index, "retrieve", None)):
            raise BadInput(
                f"index is {self.index!r:.200}; expected an opened index: indexmill.open(...) or indexmill.follow(...)"
            )
        check_arguments(Snapshot.retrieve, self.options, "self", "question")

    def ask(self, question: str, **changes: Any) -> list[Evidence]:
        """The evidence for a question, best first; ``changes``: options for this question alone."""
        asked = Retrieval(self.index, {"explain": False, **self.options, **changes})
        return [Evidence.of(hit) for hit in asked.index.retrieve(question, **asked.options)]

    async def ask_async(self, question: str, **changes: Any) -> list[Evidence]:
        """The same in another thread, so that the event loop goes on."""
        return await asyncio.to_thread(self.ask, question, **changes)


def check_arguments(function: Callable[..., object], names: Iterable[str], *given: str) -> None:
    """Check the names of arguments for a function that gets others, ``given``, anyway; raises BadInput."""
    known = [name for name in inspect.signature(function).parameters if name not in given]
    for name in names:
        if name not in known:
            raise BadInput(f"{name}: {unknown_setting(name, known)}")
