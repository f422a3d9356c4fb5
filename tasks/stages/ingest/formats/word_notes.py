"""Footnotes and endnotes of a Word document."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from tasks.stages.ingest.formats.markdown_marks import PAGE_BREAK, one_line
from tasks.stages.ingest.formats.opc import Package
from tasks.stages.ingest.formats.xml import Element, blocks

_MAX_NOTE = 20_000
_SKIP = frozenset({"w:rPrChange", "w:pPrChange"})


class Notes:
    """Footnotes or endnotes, in the order of their first references."""

    def __init__(self, package: Package, kind: str, text_of_note: Callable[[Element, str], str]) -> None:
        """Set how a note becomes Markdown. text_of_note: called with each note, and the name of its part."""
        self._package, self._kind, self._text_of_note = package, kind, text_of_note
        self._texts: dict[str, str] | None = None
        self._numbers: dict[str, int] = {}

    def numbered(self, name: str) -> tuple[int, str, bool] | None:
        """Return a note's number and text, and whether this is the first reference to it; None if it has no text."""
        if self._texts is None:
            self._texts = dict(self._read())
        text = self._texts.get(name)
        if not text:
            return None
        is_new = name not in self._numbers
        return self._numbers.setdefault(name, len(self._numbers) + 1), text, is_new

    def _read(self) -> Iterator[tuple[str, str]]:
        part = self._package.related(self._package.main, f"{self._kind}s")
        if part is None:
            return
        for note in blocks(self._package.read(part), part, f"w:{self._kind}s", 2, _SKIP):
            if note.get("w:type", "normal") != "normal":
                continue
            text = one_line(self._text_of_note(note, part).replace(PAGE_BREAK, ""))
            if len(text) > _MAX_NOTE:
                text = text[:_MAX_NOTE].rpartition(" ")[0] + " …"
            yield note.get("w:id", ""), text
