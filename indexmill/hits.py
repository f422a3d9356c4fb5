"""The results of a retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

__all__ = ["Hit", "NodeLabel", "url_of"]


class NodeLabel(NamedTuple):
    """The label of a node of a graph or tree: its id, title and text. Either of the last two may be empty."""

    id: str
    title: str
    text: str


@dataclass(frozen=True, slots=True)
class Hit:
    """One piece of evidence, best first in the list that holds it.

    kind: ``passage``, or another kind that a family returns (a summary, a unit).
    id: the id of that thing in the snapshot's tables.
    score: higher is better; comparable within one question and method only.
    document_ids: the documents the text comes from, sorted for a summary.
    tokens: of the text, as counted by the embedder; None if the snapshot does not record it.
    version: the snapshot's version; None in an exported folder that does not name one.
    explanation: why it was found, JSON-ready; None if the method has nothing to add to the score.

    Of a passage only, for citations:
    source: where its document comes from, as the corpus says; None if it does not say.
    span: the passage's place in the document's text, ``(start, end)`` in code points, the end excluded.
    metadata: of its document; ``url`` is found in it, or is the source.
    section: the headings above its start, the outermost first, without one that is the title; empty in plain text, and
    in a snapshot that was built before passages had sections.
    """

    kind: str
    id: str
    score: float
    text: str
    title: str
    document_ids: tuple[str, ...]
    tokens: int | None = None
    version: int | None = None
    explanation: dict[str, Any] | None = field(default=None, hash=False)
    source: str | None = None
    span: tuple[int, int] | None = None
    metadata: dict[str, Any] = field(default_factory=dict, hash=False)
    section: tuple[str, ...] = ()

    @property
    def url(self) -> str | None:
        """The address of its document: ``url`` of the metadata, or the source, if that is one."""
        return url_of(self.metadata, self.source)

    def to_dict(self) -> dict[str, Any]:
        """The hit as a JSON object; ``explanation`` only if there is one."""
        fields: dict[str, Any] = {
            "kind": self.kind,
            "id": self.id,
            "score": self.score,
            "title": self.title,
            "text": self.text,
            "document_ids": list(self.document_ids),
            "tokens": self.tokens,
            "version": self.version,
            "source": self.source,
            "url": self.url,
            "section": list(self.section),
            "span": None if self.span is None else list(self.span),
            "metadata": self.metadata,
        }
        if self.explanation is not None:
            fields["explanation"] = self.explanation
        return fields


def url_of(metadata: Mapping[str, Any], source: str | None) -> str | None:
    """The address of a document: ``url`` of its metadata, or its source, if that is one."""
    found = (metadata.get("url"), source)
    return next((one for one in found if isinstance(one, str) and one.startswith(("https://", "http://"))), None)
