"""The results of a retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNITS = {"docx": "page", "epub": "chapter", "notebook": "cell", "pdf": "page", "pptx": "slide", "xlsx": "sheet"}
"""What the pages of a document are called, by the format in its metadata; pages for any other."""


class NodeLabel(NamedTuple):
    """The label of a node of a graph or tree: its id, title and text. Either of the last two may be empty."""

    id: str
    title: str
    text: str


class Box(NamedTuple):
    """A rectangle on a page: its sides in points from the page's upper left corner. page: from 1."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


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
    pages: where it begins and ends in a file that has pages, ``(first, last)`` from 1; None where that is not known. A
    page is what ``unit`` says: a slide of a presentation, a cell of a notebook.
    boxes: of the blocks that it is taken from, even if it begins or ends inside of one; empty where they are not known.
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
    pages: tuple[int, int] | None = None
    boxes: tuple[Box, ...] = ()

    @property
    def page(self) -> int | None:
        """The page on which it begins."""
        return None if self.pages is None else self.pages[0]

    @property
    def unit(self) -> str | None:
        """What its pages are: ``page``, ``slide``, ``cell``, ``sheet`` or ``chapter``; None where it has none."""
        kind = self.metadata.get("format")
        return None if self.pages is None else UNITS.get(kind if isinstance(kind, str) else "", "page")

    @property
    def place(self) -> str:
        """Its pages as a citation names them: ``p. 3``, ``pp. 3–4``, ``slide 4``; empty where it has none."""
        if self.pages is None:
            return ""
        first, last = self.pages
        one, several = ("p.", "pp.") if self.unit == "page" else (f"{self.unit}", f"{self.unit}s")
        return f"{one} {first}" if first == last else f"{several} {first}–{last}"

    @property
    def url(self) -> str | None:
        """The address of its document: ``url`` of the metadata, or the source, if that is one."""
        return url_of(self.metadata, self.source)

    def to_dict(self) -> dict[str, Any]:
        """The hit as a JSON object; ``explanation`` only if there is one, pages and boxes only if they are known."""
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
        if self.pages is not None:
            fields |= {"page": self.page, "pages": list(self.pages), "unit": self.unit}
            fields["boxes"] = [box._asdict() for box in self.boxes]
        if self.explanation is not None:
            fields["explanation"] = self.explanation
        return fields


def url_of(metadata: Mapping[str, Any], source: str | None) -> str | None:
    """The address of a document: ``url`` of its metadata, or its source, if that is one."""
    found = (metadata.get("url"), source)
    return next((one for one in found if isinstance(one, str) and one.startswith(("https://", "http://"))), None)
