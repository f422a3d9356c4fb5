"""OpenDocument files (.odt, .ods, .odp): text documents, spreadsheets and presentations of LibreOffice and others.

Of the libraries, xberg publishes hidden text, comments and tables of contents, and joins words between which the file
states several spaces; odfpy has no text reader. All kinds keep their content in one part, so this module reads them.

Included: headings, lists, tables with repeated and merged cells, links, notes after the block that refers to them, text
boxes, alternative texts of pictures; sheets as sections with the cells' texts as shown; slides with speaker's notes.
Excluded: tracked deletions, comments, hidden text, sections and sheets, tables of contents and indexes, headers and
footers. Of formulas, pictures and charts only alternative texts are read.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator
from html import unescape
from typing import BinaryIO

from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats.archive import Archive, open_archive
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline, MarkdownWriter, clean
from tasks.stages.ingest.formats.opc import first_description, properties_of
from tasks.stages.ingest.formats.sheet_tables import write_sheet
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import count_words, words_of
from tasks.stages.ingest.formats.xml import Element, each, first, integer, parse, text_of

_SKIP = frozenset(
    """
    text:tracked-changes text:table-of-content text:illustration-index text:table-index text:object-index
    text:user-index text:alphabetical-index text:bibliography text:hidden-text text:ruby-text office:annotation
    office:forms table:shapes table:table-source svg:title svg:desc
    """.split()  # noqa: SIM905
)
_REASONS = {
    "text:tracked-changes": "deleted",
    "office:annotation": "comment",
    "text:table-of-content": "contents",
    "text:bibliography": "contents",
}
"""Why elements are left out, if they are not hidden: keys of `file_counts.LEFT_OUT`."""
_BREAKS_SPACE = re.compile(r"[ \t\r\n]+")
_TITLES = {"Title": 1, "Subtitle": 2}
_MAX_REPEATED_ROWS, _MAX_REPEATED_CELLS, _MAX_SPACES = 1_000, 100, 100
_MAX_REPEATED_TEXT = 200
_MAX_CELLS = 2_000_000
_MAX_PARENTS = 20
_META = "meta.xml"
_KEYS = {
    "meta:initial-creator": "author",
    "dc:creator": "author",
    "meta:creation-date": "created",
    "dc:date": "modified",
    "dc:language": "language",
    "meta:keyword": "keywords",
}


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a document; locations are sheets or slides. See `Extractor`."""
    with open_archive(file, limits, "an OpenDocument file") as archive:
        manifest = "META-INF/manifest.xml"
        if manifest in archive and b"encryption-data" in archive.read(manifest):
            raise UnreadableError("encrypted", "the file is locked with a password; save it without one")
        data = archive.read("content.xml")
        content = parse(data, "content.xml", "office:document-content")
        body = _Body(_Styles(content, archive), limits)
        body.blocks(first(content, "office:body") or content)
        text, locations = body.writer.result()
        if not text.strip():
            raise UnreadableError("no-text", "it has no visible words")
        about = parse(archive.read(_META), _META).iter("*") if _META in archive else ()
        title, metadata = properties_of(about, _KEYS)
        if unread := +(body.unread + _unread(content)):
            metadata["unread"] = dict(sorted(unread.items()))
        words = WordCounts(_words(data), body.left_out)
        return Extracted(text, title or body.title, metadata, locations, words=words)


def _unread(content: Element) -> Counter[str]:
    """Count remarks, and pictures and embedded objects without a description."""
    counts = Counter(comments=sum(1 for _ in content.iter("office:annotation")))
    for frame in content.iter("draw:frame"):
        if not _alternative(frame):
            if first(frame, "draw:object") is not None or first(frame, "draw:object-ole") is not None:
                counts["objects"] += 1
            elif first(frame, "draw:image") is not None:
                counts["pictures"] += 1
    return counts


_BREAK = re.compile(rb"<text:(?:s|tab|line-break|p|h)\b[^<>]*>|</(?:text:[ph]|table:table-cell)>")
_TAG = re.compile(rb"<[^<>]*>")


def _words(content: bytes) -> Counter[str]:
    """Return the words between the tags of a document, apart from its structure."""
    return words_of(unescape(_TAG.sub(b"", _BREAK.sub(b" ", content)).decode("utf-8", "replace")))


class _Styles:
    """What the styles of a document say: which hide text, are titles, or number lists."""

    def __init__(self, content: Element, archive: Archive) -> None:
        self._parents: dict[str, str] = {}
        self._hidden: set[tuple[str, str]] = set()
        self._numbered: set[tuple[str, int]] = set()
        trees = [content]
        if "styles.xml" in archive:
            trees.append(parse(archive.read("styles.xml"), "styles.xml"))
        for tree in trees:
            for style in tree.iter("style:style"):
                name, family = style.get("style:name", ""), style.get("style:family", "")
                self._parents.setdefault(name, style.get("style:parent-style-name", ""))
                for properties in style:
                    if properties.get("text:display") == "none" or properties.get("table:display") == "false":
                        self._hidden.add((family, name))
            for style in tree.iter("text:list-style"):
                for level in each(style, "text:list-level-style-number"):
                    if level.get("style:num-format"):
                        self._numbered.add((style.get("style:name", ""), integer(level.get("text:level"), 1)))

    def hides(self, family: str, name: str | None) -> bool:
        """Return whether a style, or one that it inherits from, hides its text."""
        return any((family, style) in self._hidden for style in self._inherited(name))

    def title_level(self, name: str | None) -> int:
        """Return the level of a title as a heading; 0 for other paragraphs."""
        return next((_TITLES[style] for style in self._inherited(name) if style in _TITLES), 0)

    def numbers(self, name: str, level: int) -> bool:
        """Return whether a list style numbers the items of a level, counted from 1."""
        return (name, level) in self._numbered

    def _inherited(self, name: str | None) -> Iterator[str]:
        for _ in range(_MAX_PARENTS):
            if not name:
                return
            yield name
            name = self._parents.get(name, "")


class _Body:
    """Writes the blocks of a document."""

    def __init__(self, styles: _Styles, limits: ExtractionLimits) -> None:
        self.writer = MarkdownWriter(limits)
        self.title = ""
        self.unread: Counter[str] = Counter()
        self.left_out: Counter[str] = Counter()  # words by reason
        self._styles, self._limits = styles, limits
        self._notes = 0
        self._due: list[str] = []
        self._frames: list[Element] = []  # text boxes anchored in the paragraph that is being read
        self._pages = self._cells = 0
        self._marker, self._level = "", 0

    def blocks(self, element: Element) -> None:
        """Write the blocks within an element."""
        for child in element:
            tag = child.tag
            if tag in _SKIP or child.get("text:display") == "none" or child.get("text:is-hidden") == "true":
                self._leave_out(child)
                continue
            if tag in ("text:p", "text:h"):
                self._paragraph(child)
            elif tag == "text:list":
                self._list(child, "", 1)
            elif tag == "table:table":
                self._table(child)
            elif tag == "draw:page":
                self._turn_page("slides")
                self.blocks(child)
            elif tag == "office:spreadsheet":
                for sheet in each(child, "table:table"):
                    self._turn_page("sheets")
                    if self._styles.hides("table", sheet.get("table:style-name")):
                        self.unread["hidden_sheets"] += 1
                        self._leave_out(sheet)
                    else:
                        self.writer.heading(2, Inline(one_line(clean(sheet.get("table:name", "")))).markdown())
                        self._table(sheet)
            else:
                self._picture(child)
                self.blocks(child)

    def _leave_out(self, element: Element) -> None:
        tag = str(element.tag)
        reason = "contents" if tag.endswith("-index") else _REASONS.get(tag, "hidden")
        self.left_out[reason] += count_words(" ".join(element.itertext()))

    def _turn_page(self, units: str) -> None:
        self._pages += 1
        self._limits.check_pages(self._pages, units)
        self.writer.turn_to(self._pages)

    def _picture(self, element: Element) -> None:
        inline = Inline()
        inline.picture(_alternative(element))
        self.writer.paragraph(inline.markdown())

    def _paragraph(self, element: Element) -> None:
        style = element.get("text:style-name")
        if self._styles.hides("paragraph", style):
            self._leave_out(element)
            return
        inline = Inline()
        self._inline(element, inline, "")
        words = inline.markdown()
        level = integer(element.get("text:outline-level"), 1) if element.tag == "text:h" else 0
        level = level or self._styles.title_level(style)
        if level and words:
            self.title = self.title or title_of(inline.plain())
            self.writer.heading(level, words)
        elif self._marker and words:
            self.writer.item(self._level, self._marker, words)
            self._marker = ""
        else:
            self.writer.paragraph(words)
        frames, self._frames = self._frames, []
        for frame in frames:
            self.blocks(frame)
        self._write_notes()

    def _write_notes(self) -> None:
        due, self._due = self._due, []
        for note in due:
            self.writer.paragraph(note)

    def _list(self, element: Element, inherited: str, level: int) -> None:
        style = element.get("text:style-name", inherited)
        number = 0
        for item in element:
            if item.tag not in ("text:list-item", "text:list-header"):
                continue
            number = integer(item.get("text:start-value"), number + 1)
            self._level = level - 1
            self._marker = f"{number}." if self._styles.numbers(style, level) else "-"
            for child in item:
                if child.tag == "text:list":
                    self._marker = ""
                    self._list(child, style, level + 1)
                else:
                    holder = Element("item")
                    holder.append(child)
                    self.blocks(holder)
            self._marker = ""

    def _inline(self, element: Element, inline: Inline, target: str) -> None:
        inline.add(_one_space(element.text), target)
        for child in element:
            self._child(child, inline, target)
            inline.add(_one_space(child.tail), target)

    def _child(self, child: Element, inline: Inline, target: str) -> None:
        tag = child.tag
        if tag == "text:s":
            inline.add(" " * max(1, min(integer(child.get("text:c"), 1), _MAX_SPACES)), target)
        elif tag == "text:tab":
            inline.add(" ", target)
        elif tag == "text:line-break":
            inline.add("\n", target)
        elif tag == "text:note":
            note = Inline()
            for paragraph in child.iter("text:p"):
                if note:
                    note.add(" ")
                self._inline(paragraph, note, "")
            if text := one_line(note.markdown()):
                self._notes += 1
                inline.note(f"{self._notes}")
                self._due.append(f"[^{self._notes}] {text}")
        elif str(tag).startswith("draw:") and tag != "draw:a":
            inline.picture(_alternative(child))
            if next(child.iter("text:p"), None) is not None:
                self._frames.append(child)
        elif (
            tag in _SKIP
            or child.get("text:is-hidden") == "true"
            or self._styles.hides("text", child.get("text:style-name"))
        ):
            self._leave_out(child)
        else:
            self._inline(child, inline, child.get("xlink:href", target))

    def _table(self, element: Element) -> None:
        rows: list[list[str]] = []
        above: dict[int, tuple[int, str]] = {}  # by column, the further rows that a cell spans, and its text
        is_sheet = self._pages > 0
        for row in _rows(element):
            cells = self._row(row, above)
            if not any(cells):
                if is_sheet:
                    rows.append([])
                continue
            count = max(1, min(integer(row.get("table:number-rows-repeated"), 1), _MAX_REPEATED_ROWS))
            self._cells += count * len(cells)
            if self._cells > _MAX_CELLS:
                raise UnreadableError("too-large", f"its tables have more than {_MAX_CELLS:,} cells")
            rows += [cells] * count
        write_sheet(self.writer, rows)
        self._write_notes()

    def _row(self, row: Element, above: dict[int, tuple[int, str]]) -> list[str]:
        cells: list[str] = []
        for cell in row:
            if cell.tag not in ("table:table-cell", "table:covered-table-cell"):
                continue
            column = len(cells)
            text = self._cell(cell)
            remaining, spanning = above.get(column, (0, ""))
            if remaining and not text:
                text = spanning
            if remaining:
                above[column] = remaining - 1, spanning
            spanned = integer(cell.get("table:number-rows-spanned"), 1)
            if spanned > 1:
                above[column] = spanned - 1, text if len(text) <= _MAX_REPEATED_TEXT else ""
            repeated = max(1, integer(cell.get("table:number-columns-repeated"), 1))
            cells += [text] * min(repeated, _MAX_REPEATED_CELLS)
        while cells and not cells[-1]:
            cells.pop()
        return cells

    def _cell(self, cell: Element) -> str:
        parts = []
        for child in cell:
            if child.tag in _SKIP:
                continue
            if child.tag in ("text:p", "text:h"):
                blocks = [child]
            else:
                blocks = [block for block in child.iter("*") if block.tag in ("text:p", "text:h")]
            for block in blocks:
                inline = Inline()
                self._inline(block, inline, "")
                parts.append(one_line(inline.markdown()))
        frames, self._frames = self._frames, []
        for frame in frames:
            parts += [one_line(Inline(text_of(block)).markdown()) for block in frame.iter("text:p")]
        return " ".join(filter(None, parts))


def _rows(element: Element) -> Iterator[Element]:
    for child in element:
        if child.tag == "table:table-row":
            yield child
        elif child.tag in ("table:table-header-rows", "table:table-rows", "table:table-row-group"):
            yield from _rows(child)


def _alternative(element: Element) -> str:
    """Return the alternative text of a picture or shape."""
    return first_description(text_of(first(element, tag)) for tag in ("svg:desc", "svg:title"))


def _one_space(text: str | None) -> str:
    return _BREAKS_SPACE.sub(" ", text) if text else ""
