"""Titles: one filter for the titles of all formats, since a title counts more than the text in every search."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from itertools import islice

from tasks.stages.ingest.documents import MAX_TITLE_BYTES
from tasks.stages.ingest.formats.markdown_marks import PAGE_BREAK, heading_of, one_line
from tasks.stages.ingest.formats.markdown_text import clean
from tasks.text.markup import heading_end, visible

_FENCE = re.compile(r" {0,3}(`{3,}|~{3,})")
_UNDERLINE = re.compile(r" {0,3}(?:=+|-+)[ \t]*$")
_NOT_UNDERLINED = re.compile(r"\s*(?:$|[-*+]\s|[|>])")
_SPECIAL = re.compile(r"[\\`*_\[\]!<&]")

_PROGRAM = re.compile(r"microsoft (?:office )?(?:word|powerpoint|excel|visio|publisher) - ", re.IGNORECASE)
_NAMELESS = (
    "(?:anonymous|unnamed|no[ -]?name|no title|untitled|ohne titel|unbenannt|sans titre|sin t[ií]tulo|sem t[ií]tulo|"
    "senza titolo|naamloos|namnl[oö]s|bez tytułu|без имени|без названия|безымянный|"
    "无标题|無標題|未命名|無題|제목 ?없음)"
)
_KIND = (
    "(?:do[ck]|do[ck]ument|document[eo]|documento|документ|文档|文書|pr.?[aäeé]sentation|presentaci[oó]n|presentazione|"
    "apresenta[cç][aã]o|презентация|powerpoint|book|workbook|mappe|classeur|libro|cartel|pasta|книга|slide|folie|"
    "diapositiv[ae]|sheet|drawing|page|template|title|titel|titre|t[ií]tulo|layout|print|演示文稿|工作簿|幻灯片|"
    "プレゼンテーション|スライド|ブック|프레젠테이션|문서)"
)
_UNNAMED = re.compile(rf"[\W_]*{_NAMELESS}[\W_]*(?:{_KIND})?[\W_]*\d{{0,3}}[\W_]*")
_BY_PROGRAM = re.compile(
    rf"[\W_]*(?:(?:new|neues|nouveau|nuevo|novo|nuovo|nowy|новый|新建) ?)?(?:{_KIND} )?(?:microsoft )?"
    rf"(?:(?:word|powerpoint|excel|office)[ -]*)?(?:{_KIND})?(?: (?:d[eo] )?powerpoint| {_NAMELESS})?[\W_]*\d{{0,3}}"
    r"[\W_]*(?:\[[^\]]{1,40}\])?[\W_]*"
    r"|about:blank|(?:scanned? )(?:document|image|page)s?[\W_]*\d*|camscanner\b.*|scan[\W_]?\d*"
)
_MOST_HEADINGS = 20
_FILE_NAME = re.compile(
    r".*\.(?:do[ct][xm]?|od[tps]|pdf|pp[ts][xm]?|xl[st][xm]?|rtf|indd|qxd|pmd|wpd|vsdx?|tex|dvi|e?ps|fm)"
    r"|\S+\.(?:txt|html?|md|csv|xml|jpe?g|png|tiff?|pages|key)|[a-z]:\\.*|\\\\.*|file:.*",
    re.IGNORECASE,
)


def title_of(text: str, *, stated: bool = False) -> str:
    """Return a title as one line, without markers of headings; empty for one that names nothing, or is too long.

    stated: whether it is a property of a file, which programs fill in, rather than written by the author. A name of a
    file, or of a kind of document, then names nothing either.
    """
    title = one_line(clean(text).replace(PAGE_BREAK, ""))
    title = title[: heading_end(title)]
    title = _PROGRAM.sub("", title, count=1) if stated else title
    folded = unicodedata.normalize("NFC", title[:300]).casefold()
    if _UNNAMED.fullmatch(folded) or (stated and (_BY_PROGRAM.fullmatch(folded) or _FILE_NAME.fullmatch(title))):
        return ""
    return title if len(title.encode("utf-8", "replace")) <= MAX_TITLE_BYTES else ""


def first_heading(markdown: str) -> str:
    """Return the visible text of the first heading outside code that is a title, in either of Markdown's notations."""
    headings = (title_of(_visible(heading)) for heading in islice(_headings(markdown), _MOST_HEADINGS))
    return next(filter(None, headings), "")


def _headings(markdown: str) -> Iterator[str]:
    fence = previous = ""
    for line in markdown.splitlines():
        mark = _FENCE.match(line)
        if fence:
            fence = "" if mark and mark[1].startswith(fence) else fence
        elif mark:
            fence = mark[1]
        elif (heading := heading_of(line)) is not None:
            yield heading
        elif _UNDERLINE.match(line) and not _NOT_UNDERLINED.match(previous):
            yield previous.strip()
        previous = "" if fence else line


def _visible(heading: str) -> str:
    seen = visible(f"# {heading}", "markdown") if _SPECIAL.search(heading) else None
    return heading if seen is None else seen.text
