"""Web pages (.html): the visible text of the page, in Markdown.

`xhtml_text` writes the content of the page, its main element if there is one, with headings, lists, tables and code.
Excluded are navigation, the header and footer of the page, hidden elements, and permalinks to headings.

Articles of news sites and blogs are surrounded by teasers, comments and advertisements. trafilatura finds the article
among them, but drops headings, lists and code of other pages. So its text is used only

- for a page without code that says that it is an article, or is made by a blog's software, or
- if it has nearly all headings and list items between the first and the last of its paragraphs,

and never if it loses most paragraphs of the page's only `article` element.

On public files, all 25 articles are read by trafilatura, and all 30 pages of documentation whole (`make acceptance`).
"""

from __future__ import annotations

import json
import logging
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any, BinaryIO

from indexmill.extras import not_installed
from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, read_text
from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import MarkdownWriter
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import count_words, words_of
from tasks.stages.ingest.formats.xhtml_text import (
    BLOCKS,
    CONTROLS,
    HEADINGS,
    is_ever_shown,
    is_unread,
    page_of,
    visible_text,
    write,
)
from tasks.stages.ingest.formats.xml import Element

_MANY_ATTRIBUTES = re.compile(r"<[A-Za-z](?:[^<>\s]*+\s++){10000}")
"""A tag with too many attributes: the HTML library compares each attribute with all before it."""

_SURROUNDINGS = frozenset({"banner", "contentinfo", "navigation", "search"})
"""The roles of what surrounds the content (https://www.w3.org/TR/wai-aria-1.2/#landmark_roles)."""
_HIDDEN = re.compile(r"(?:^|;)\s*(?:display\s*:\s*none|visibility\s*:\s*hidden)\b", re.IGNORECASE)
_PERMALINK = re.compile(r"[¶#§🔗\s]*")

_ARTICLE = re.compile(r"(?:https?://schema\.org/)?\w*(?:Article|Posting)")
_ARTICLE_CLASSES = frozenset({"h-entry", "hentry", "single-post"})
_BLOG = re.compile(r"(?:wordpress|blogger|ghost|typo3|joomla|drupal)\b", re.IGNORECASE)
_PARTS = frozenset({"main", "article", "section", "aside", "blockquote", "figure", "details", "dialog", "td"})
"""Elements with a header and footer of their own, which are content."""
_CHECKED = frozenset({*HEADINGS, "p", "li", "td"})
_COVERED = 0.9
_LOST = 0.7
"""The share of the text of paragraphs that an article may lose, such as comments within it."""
_LONG = 4
"""The least number of words by which a paragraph of trafilatura's text is recognised in the page."""
_WORD = re.compile(r"\w+")


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Extract the text of a page. See `Extractor`."""
    page = _read_page(file, limits)
    tree = page_of(page)
    name = next((_words(element) for element in tree.iter("title")), "")
    says_article, may_be_article = _says_article(tree), _may_be_article(tree)
    words, left_out = words_of(visible_text(tree)), Counter[str]()
    _clean(tree, left_out)
    content = _content(tree)
    if content is not tree:
        left_out["navigation"] += count_words(visible_text(tree)) - count_words(visible_text(content))
    title = _title(content, name)
    if says_article or may_be_article:
        article = _article(page)
        is_sure = says_article and next(content.iter("pre"), None) is None
        if article is not None and _keeps_paragraphs(article, content) and (is_sure or _covers(article, content)):
            left_out["beside-article"] = (words_of(visible_text(content)) - words_of(visible_text(article))).total()
            content = article
    writer = MarkdownWriter(limits)
    write(content, writer)
    return Extracted(writer.result()[0], title, words=WordCounts(words, left_out))


def write_page(file: BinaryIO, limits: ExtractionLimits, writer: MarkdownWriter) -> None:
    """Write the text of a whole page, for example one that is embedded in a document. Raises as `extract` does."""
    tree = page_of(_read_page(file, limits))
    _clean(tree, Counter())
    write(_content(tree), writer)


def _read_page(file: BinaryIO, limits: ExtractionLimits) -> str:
    most = 3 * limits.text_bytes + 65_536
    page = read_text(file, most, f"the file has more than {most:,} bytes").replace("\r\n", "\n")
    if "\x00" in page:
        raise UnreadableError("nul", f"at character {page.index(chr(0))}")
    if _MANY_ATTRIBUTES.search(page):
        raise UnreadableError("unreadable-file", "a tag has more than 10,000 attributes")
    return page


def _content(tree: Element) -> Element:
    """Return the only main element of a page if it has most of the words, otherwise the whole page."""
    mains = [element for element in tree.iter("*") if element.tag == "main" or element.get("role") == "main"]
    if len(mains) == 1 and len(_words(mains[0])) > len(_words(tree)) / 2:
        return mains[0]
    return tree


def _title(content: Element, name: str) -> str:
    """Return the only top heading, or the first of several that the page's name contains, or else the page's name."""
    headings = [heading for element in content.iter("h1") if (heading := title_of(_words(element)))]
    if len(headings) > 1:
        headings = [heading for heading in headings if heading.lower() in name.lower()]
    return next(iter(headings), title_of(name, stated=True))


def _words(element: Element) -> str:
    """Return an element's text as one line, without permalinks."""
    return one_line("".join(_strings(element)))


def _strings(element: Element) -> Iterator[str]:
    yield element.text or ""
    for child in element:
        gap = " " if child.tag in BLOCKS or child.tag == "br" else ""
        yield gap
        if not _is_permalink(child):
            yield from _strings(child)
        yield gap + (child.tail or "")


def _says_article(tree: Element) -> bool:
    """Return whether a page says that it is an article, in any of the usual ways, or names a blog's software."""
    for meta in tree.iter("meta"):
        name, content = meta.get("property", meta.get("name", "")).lower(), meta.get("content", "")
        if name.startswith("article:") or (name == "og:type" and content.lower() in ("article", "blog")):
            return True
        if name == "generator" and _BLOG.match(content):
            return True
    for element in tree.iter("*"):
        if _ARTICLE.fullmatch(element.get("itemtype", "")) or not _ARTICLE_CLASSES.isdisjoint(
            element.get("class", "").split()
        ):
            return True
    scripts = (script for script in tree.iter("script") if script.get("type") == "application/ld+json")
    return any(_has_article(script.text or "") for script in scripts)


def _may_be_article(tree: Element) -> bool:
    """Return whether a page has an `article` element, or describes itself to social networks."""
    return next(tree.iter("article"), None) is not None or any(
        meta.get("property", "").startswith("og:") for meta in tree.iter("meta")
    )


def _has_article(data: str) -> bool:
    try:
        value = json.loads(data)
    except (ValueError, RecursionError):
        return False
    todo: list[Any] = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, list):
            todo += item
        elif isinstance(item, dict):
            types = item.get("@type")
            names = types if isinstance(types, list) else [types]
            if any(isinstance(name, str) and _ARTICLE.fullmatch(name) for name in names):
                return True
            todo.append(item.get("@graph"))
    return False


def _clean(parent: Element, left_out: Counter[str], *, within_content: bool = False) -> None:
    """Remove what is not content, and count its words by reason: see the module."""
    for child in list(parent):
        if child.tag == "button" and parent.tag in HEADINGS and _words(child) == _words(parent):
            child.tag = "span"  # it opens the section below
        if reason := _why_excluded(child, within_content=within_content):
            if is_ever_shown(child):
                left_out[reason] += count_words(visible_text(child))
            _drop(parent, child)
        else:
            _clean(child, left_out, within_content=within_content or child.tag in _PARTS)


def _why_excluded(element: Element, *, within_content: bool) -> str:
    """Return why an element is not content, a key of `file_counts.LEFT_OUT`; empty if it is."""
    is_around = element.get("role") in _SURROUNDINGS or (
        element.tag in ("header", "footer") and not within_content and not _is_title_block(element)
    )
    if is_around or element.tag in CONTROLS or _is_permalink(element):
        return "navigation"
    is_hidden = element.get("aria-hidden") == "true" or _HIDDEN.search(element.get("style", "")) is not None
    return "hidden" if is_hidden or is_unread(element) else ""


def _is_title_block(element: Element) -> bool:
    """Return whether a header is the title block of a document, as Pandoc writes it."""
    return element.get("id") == "title-block-header" or "title-block" in element.get("class", "").split()


def _is_permalink(element: Element) -> bool:
    if element.tag != "a" or "href" not in element.attrib:
        return False
    classes = element.get("class", "").split()
    words = "".join(element.itertext())
    leads_here = element.get("href", "").startswith("#") or ("#" in element.get("href", "") and words.strip() != "")
    return "headerlink" in classes or (leads_here and _PERMALINK.fullmatch(words) is not None)


def _drop(parent: Element, child: Element) -> None:
    """Remove a child; the text after it stays."""
    if child.tail:
        row = list(parent).index(child)
        if row:
            parent[row - 1].tail = (parent[row - 1].tail or "") + child.tail
        else:
            parent.text = (parent.text or "") + child.tail
    parent.remove(child)


def _article(page: str) -> Element | None:
    """Return an article as trafilatura sees it; None if it finds none."""
    try:
        import trafilatura  # takes a second to import, which other corpora do not need
    except ImportError as error:
        raise not_installed("reading articles", "trafilatura", error) from error
    logging.getLogger("trafilatura").setLevel(logging.CRITICAL)  # of its warnings, none concerns the user
    try:
        article = trafilatura.extract(page, output_format="html", include_comments=False)
    except MemoryError:
        raise
    except Exception:  # pages are untrusted; after any error of the parser the page is read whole
        return None
    return page_of(article) if article else None


def _keeps_paragraphs(article: Element, content: Element) -> bool:
    """Return whether an article has the paragraphs of the page's only article element, if it has exactly one."""
    elements = list(content.iter("article"))
    whole = f" {_plain(_words(article))} "
    paragraphs = [_plain(_words(paragraph)) for element in elements for paragraph in element.iter("p")]
    lost = sum(len(words) for words in paragraphs if f" {words} " not in whole)
    return len(elements) != 1 or lost <= _LOST * sum(map(len, paragraphs))


def _covers(article: Element, tree: Element) -> bool:
    """Return whether an article has the page's headings and list items between its first and its last paragraph."""
    whole = f" {_plain(_words(article))} "
    blocks = [(element.tag, _plain(_words(element))) for element in tree.iter("*") if element.tag in _CHECKED]
    blocks = [(tag, words) for tag, words in blocks if words]
    shared = [f" {words} " in whole for _, words in blocks]
    rows = [
        row
        for row, (tag, words) in enumerate(blocks)
        if shared[row] and tag not in HEADINGS and words.count(" ") >= _LONG - 1
    ]
    if not rows:
        return False
    required = [row for row in range(rows[0], rows[-1] + 1) if blocks[row][0] == "li" or blocks[row][0] in HEADINGS]
    return sum(shared[row] for row in required) >= _COVERED * len(required)


def _plain(text: str) -> str:
    return " ".join(_WORD.findall(text.lower()))
