"""Footnotes and endnotes of a Word document."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline
from tasks.stages.ingest.formats.opc import Package
from tasks.stages.ingest.formats.word_styles import is_on
from tasks.stages.ingest.formats.xml import Element, blocks, first

_MAX_NOTE = 20_000
_SKIP = frozenset({"w:rPrChange", "w:pPrChange"})
_HOLDERS = frozenset({"w:r", "w:ins", "w:moveTo", "w:smartTag", "w:fldSimple", "w:sdt", "w:sdtContent"})


class Notes:
    """Footnotes or endnotes, in the order of their first references."""

    def __init__(self, package: Package, kind: str) -> None:
        self._package, self._kind = package, kind
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
        links = self._package.links(part)
        for note in blocks(self._package.read(part), part, f"w:{self._kind}s", 2, _SKIP):
            if note.get("w:type", "normal") != "normal":
                continue
            inline = Inline()
            for paragraph in note.iter("w:p"):
                if inline:
                    inline.add(" ")
                _note_text(paragraph, inline, links, "")
            text = one_line(inline.markdown())
            if len(text) > _MAX_NOTE:
                text = text[:_MAX_NOTE].rpartition(" ")[0] + " …"
            yield note.get("w:id", ""), text


def _note_text(element: Element, inline: Inline, links: Mapping[str, str], target: str) -> None:
    for child in element:
        if child.tag == "w:t":
            inline.add(child.text or "", target)
        elif child.tag in ("w:tab", "w:br", "w:cr"):
            inline.add(" ")
        elif child.tag == "w:noBreakHyphen":
            inline.add("-")
        elif child.tag == "w:hyperlink":
            _note_text(child, inline, links, links.get(child.get("r:id", ""), ""))
        elif child.tag in _HOLDERS and is_on(first(child, "w:rPr"), "w:vanish") is not True:
            _note_text(child, inline, links, target)
