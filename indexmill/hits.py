"""The results of a retrieval."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

UNITS = {
    "docx": "page",
    "epub": "chapter",
    "notebook": "cell",
    "opendocument-presentation": "slide",
    "opendocument-spreadsheet": "sheet",
    "pdf": "page",
    "pptx": "slide",
    "xls": "sheet",
    "xlsx": "sheet",
}
"""The name of a document's pages, by the format in its metadata; ``page`` for other formats."""


class NodeLabel(NamedTuple):
    """The label of a node of a graph or tree: its id, title and text. Title and text may be empty."""

    id: str
    title: str
    text: str


class Box(NamedTuple):
    """A rectangle on a page: its sides in points from the page's upper left corner. Pages count from 1."""

    page: int
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Hit:
    """One piece of evidence; a list of hits is sorted best first.

    kind: ``passage``, or a kind that only some families return, such as ``summary`` or ``unit``.
    id: the passage's or node's id in the snapshot's tables.
    score: higher is better; comparable within one question and method only.
    document_ids: the documents the text comes from, sorted for a summary.
    tokens: the number of the text's tokens, as the embedder counts them; None if the snapshot does not record it.
    version: the snapshot's version; None in an exported folder that does not name one.
    explanation: why the hit has its rank, JSON-ready; None if the method has nothing to add to the score.

    For a passage only, to cite it:
    source: where its document comes from, according to the corpus; None if the corpus has no source.
    span: the passage's offsets in the document's text, ``(start, end)`` in code points, end excluded.
    metadata: the metadata of its document; ``url`` is taken from it, or from the source.
    section: the headings above the passage's start, outermost first, without a heading that equals the title; empty in
    plain text, and in a snapshot built before passages had sections.
    pages: the first and last page in a file with pages, ``(first, last)`` from 1; None if unknown. ``unit`` says what a
    page is: a slide of a presentation, a cell of a notebook.
    boxes: the boxes of the blocks that contain the passage, which may begin or end inside a block; empty if unknown.
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
        """The first page of the passage; None without pages."""
        return None if self.pages is None else self.pages[0]

    @property
    def unit(self) -> str | None:
        """What the pages are: ``page``, ``slide``, ``cell``, ``sheet`` or ``chapter``; None without pages."""
        kind = self.metadata.get("format")
        return None if self.pages is None else UNITS.get(kind if isinstance(kind, str) else "", "page")

    @property
    def place(self) -> str:
        """The passage's pages as a citation: ``p. 3``, ``pp. 3–4``, ``slide 4``; empty without pages."""
        if self.pages is None:
            return ""
        first, last = self.pages
        singular, plural = ("p.", "pp.") if self.unit == "page" else (f"{self.unit}", f"{self.unit}s")
        return f"{singular} {first}" if first == last else f"{plural} {first}–{last}"

    @property
    def url(self) -> str | None:
        """The URL of the document: ``url`` in its metadata, else its source if that is a URL."""
        return url_of(self.metadata, self.source)

    def to_dict(self) -> dict[str, Any]:
        """Return the hit as a JSON object; ``explanation``, pages and boxes are left out if the hit has none."""
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
    """Return the URL of a document: ``url`` in its metadata, else its source if that is a URL."""
    addresses = (metadata.get("url"), source)
    return next((url for url in addresses if isinstance(url, str) and url.startswith(("https://", "http://"))), None)
