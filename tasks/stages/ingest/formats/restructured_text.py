"""Converts reStructuredText, which docutils parses, and the text of Sphinx's additions to Markdown.

docutils (public domain; a few files under BSD) is the format's reference implementation. Here it reads no other file
and no configuration: inclusion, raw text and picture sizes are disabled, as are directives that depend on the day or on
an earlier document (`date`, `role`). Unknown roles and directives, mostly Sphinx's, are replaced by their text, since
Sphinx itself would run a project's `conf.py`. Pandoc is licensed under the GPL, and supports fewer roles and
directives. docutils is slow (100 kB/s) and recursive, so long or deeply nested files are rejected.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from itertools import pairwise
from typing import Any, BinaryIO

from docutils import nodes
from docutils.core import publish_doctree
from docutils.parsers.rst import Directive, Parser, directives, states
from docutils.utils import unescape

from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats.extraction import (
    Extracted,
    ExtractionLimits,
    UnreadableError,
    read_text,
)
from tasks.stages.ingest.formats.markdown_marks import escaped, fenced, guarded, heading_text, table
from tasks.stages.ingest.formats.title_filter import title_of
from tasks.stages.ingest.formats.word_count import words_of
from tasks.text.markdown import code_span

MAX_BYTES = 2_000_000
MAX_LINE = 10_000
_MAX_SUBSTITUTION = 1_000  # the maximum number of characters that a substitution expands to
_MAX_EXPANDED = 2_000_000  # the maximum number of characters that all substitutions expand to
_MAX_CHAIN = 50
_MAX_FIELD = 500
_ERROR = 3  # docutils' level of errors; text that only causes a warning stays in the document
_MAX_NAME = 60

_DIRECTIVE = re.compile(r"\.\.[ \t]+(?:\|[^|\n]{1,200}\|[ \t]+)?([\w:+.-]{1,60}?)[ \t]?::(?=[ \t\n]|$)")
_STANDARD_DIRECTIVES = frozenset(
    """
    attention caution code danger error important note tip hint warning admonition sidebar topic line-block
    parsed-literal math rubric epigraph highlights pull-quote compound container table csv-table list-table image
    figure contents replace unicode class
    """.split()  # noqa: SIM905
)
"""The directives that docutils handles itself."""
_SKIPPED_DIRECTIVES = frozenset(
    """
    include raw date role default-role sectnum section-numbering target-notes header footer meta title index module
    currentmodule highlight py:module py:currentmodule cpp:namespace c:namespace default-domain tabularcolumns rst-class
    cssclass acks-end codeauthor-end highlightlang nbinput-end testsetup testcleanup
    """.split()  # noqa: SIM905
)
"""Directives that are omitted: they include files, configure something, or set a state."""
_CODE = {
    **dict.fromkeys(("code-block", "sourcecode", "highlight-code"), ""),
    **dict.fromkeys(("ipython", "jupyter-execute", "plot", "pyplot", "doctest", "testcode", "exec_code"), "python"),
    **dict.fromkeys(("bokeh-plot", "altair-plot"), "python"),
    **dict.fromkeys(("graphviz", "digraph", "graph"), "dot"),
    **dict.fromkeys(("testoutput", "uml", "productionlist", "program-output"), "text"),
    "mermaid": "mermaid",
    "prompt": "bash",
}
"""Directives whose content is code, and the code's language; if empty, the argument names the language."""
_LABELS = {
    **dict.fromkeys(("versionadded", "version-added"), "Added in version"),
    **dict.fromkeys(("versionchanged", "version-changed"), "Changed in version"),
    **dict.fromkeys(("deprecated", "version-deprecated"), "Deprecated since version"),
    **dict.fromkeys(("versionremoved", "version-removed"), "Removed in version"),
    "seealso": "See also",
    "todo": "Todo",
}
_FACTS = ("version", "released", "tags", "tickets", "author", "date")
_STANDARD_ROLES = frozenset(
    """emphasis strong literal math subscript sub superscript sup title-reference title t pep-reference pep
    rfc-reference rfc""".split()  # noqa: SIM905
)
_PROSE_ROLES = frozenset(
    """ref doc term abbr guilabel menuselection dfn numref download any token keyword manpage newsgroup mailheader
    mimetype index user author eq cite""".split()  # noqa: SIM905
)
_SUBSTITUTION = re.compile(
    r"^[ \t]*\.\.[ \t]+\|([^|\n]{1,200})\|[ \t]+\w+::([^\n]*(?:\n[ \t]+\S[^\n]*)*)", re.MULTILINE
)
_REFERENCE = re.compile(r"\|([^|\n]{1,200})\|")
_EXPLICIT = re.compile(r"(.+?)\s*<([^<>]*)>$", re.DOTALL)
_QUOTED = re.compile(r"^`?(.*?)`?_{0,2}$", re.DOTALL)
_ROLE = re.compile(r"^(?::[\w:+.-]+:)?`(.*)`(?::[\w:+.-]+:)?$", re.DOTALL)


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Convert the text to Markdown, with the title and the header fields. See `Extractor`."""
    most = min(MAX_BYTES, limits.text_bytes)
    text = read_text(file, most, f"the file is over {most:,} bytes; reading it would take minutes")
    text = text.replace("\r\n", "\n")
    if "\x00" in text:
        raise UnreadableError("nul", f"at character {text.index(chr(0)):,}")
    longest = max(map(len, text.split("\n")))
    if longest > MAX_LINE:
        raise UnreadableError("too-large", f"a line has {longest:,} characters; at most {MAX_LINE:,} are read")
    return markdown_of(text, limits)


def markdown_of(text: str, limits: ExtractionLimits) -> Extracted:
    """Convert reStructuredText to Markdown. Raises UnreadableError if docutils cannot read it."""
    _check_substitutions(text)
    try:
        document = _parsed(text)
        has_title = bool(document.children) and document.children[0].tagname == "title"
        markdown = "\n\n".join(_blocks(document.children, 2 if has_title else 1)).strip("\n")
        title, metadata = _title(document), _metadata(document)
        words = WordCounts(_words(document))
    except RecursionError as error:
        raise UnreadableError("hostile-file", "its lists, quotes, tables or references nest too deeply") from error
    except (ImportError, MemoryError):
        raise
    except Exception as error:
        raise UnreadableError("unreadable-file", f"docutils: {type(error).__name__}") from error
    if len(markdown.encode("utf-8", "surrogatepass")) > limits.text_bytes:
        raise UnreadableError("too-large", f"its text is over {limits.text_bytes:,} bytes")
    return Extracted(f"{markdown}\n" if markdown else "", title, metadata, words=words)


def _words(document: nodes.document) -> Counter[str]:
    """Return the visible words as docutils sees them, without comments and messages about errors."""
    words: Counter[str] = Counter()
    todo: list[nodes.Node] = [document]
    while todo:
        node = todo.pop()
        if isinstance(node, nodes.Text):
            words.update(words_of(node.astext()))
        elif not isinstance(node, nodes.comment | nodes.system_message | nodes.raw | nodes.substitution_definition):
            todo += node.children
    return words


def _check_substitutions(text: str) -> None:
    """Reject nested substitutions that expand to so much text that docutils would not finish."""
    definitions = {" ".join(name.split()).casefold(): body for name, body in _SUBSTITUTION.findall(text)}
    if not definitions:
        return
    weights: dict[str, int] = {}

    def references(body: str) -> list[str]:
        return [" ".join(name.split()).casefold() for name in _REFERENCE.findall(body)]

    for first in definitions:
        path = [first]
        while path:
            inner = [name for name in references(definitions[path[-1]]) if name in definitions]
            waiting = next((name for name in inner if name not in weights and name not in path), None)
            if waiting is None or len(path) > _MAX_CHAIN:
                name = path.pop()
                size = len(definitions[name])
                weights[name] = min(size + sum(weights.get(inner_name, 1) for inner_name in inner), _MAX_EXPANDED + 1)
            else:
                path.append(waiting)
    if sum(weights.get(name, 0) for name in references(text)) > _MAX_EXPANDED:
        raise UnreadableError("hostile-file", f"its substitutions expand to more than {_MAX_EXPANDED:,} characters")


# docutils, without file access.


class _Parser(Parser):  # type: ignore[misc]
    def parse(self, inputstring: str, document: nodes.document) -> None:
        super().parse(inputstring, document)
        document.settings.line_length_limit = _MAX_SUBSTITUTION


def _inliner() -> states.Inliner:
    inliner = states.Inliner()  # not a subclass, which would lack the names that the patterns use

    def interpreted(source: str, text: str, role: str, line: int) -> Any:
        name = role.lower() if role else ""
        if not name or name in _STANDARD_ROLES:
            return states.Inliner.interpreted(inliner, source, text, role, line)
        return [_role(name, unescape(text), source)], []

    inliner.interpreted = interpreted
    return inliner


class _AnyOption(dict):  # type: ignore[type-arg]
    def __bool__(self) -> bool:
        return True

    def __getitem__(self, key: str) -> Callable[[str], str]:
        return lambda value: value or ""


class _Unknown(Directive):  # type: ignore[misc]
    """Replaces directives unknown to docutils."""

    optional_arguments = 1
    final_argument_whitespace = True
    option_spec = _AnyOption()
    has_content = True

    def run(self) -> list[nodes.Node]:
        return _directive(self, self.name.lower())


def _parsed(text: str) -> nodes.document:
    for name in sorted({name.lower() for name in _DIRECTIVE.findall(text)} | _SKIPPED_DIRECTIVES):
        if name not in _STANDARD_DIRECTIVES:
            directives.register_directive(name, _Unknown)
    settings = {
        "_disable_config": True,
        "auto_id_prefix": "%",
        "doctitle_xform": True,
        "docinfo_xform": True,
        "file_insertion_enabled": False,
        "halt_level": 6,
        "input_encoding": "unicode",
        "language_code": "en",
        "line_length_limit": MAX_LINE,
        "raw_enabled": False,
        "report_level": 3,
        "sectnum_xform": False,
        "smart_quotes": False,
        "syntax_highlight": "none",
        "traceback": True,
        "warning_stream": False,
    }
    return publish_doctree(text, parser=_Parser(inliner=_inliner()), settings_overrides=settings)


def _role(name: str, text: str, source: str) -> Any:
    """Return the text of an unknown role as Sphinx shows it: its title, or the last part of a target such as `~a.b`."""
    bare = name.rpartition(":")[2]
    explicit = _EXPLICIT.match(text)
    if bare in ("abbr", "samp", "file", "code"):
        explicit = None
    shown = explicit[1] if explicit else text.removeprefix("!")
    if not explicit and shown.startswith("~"):
        shown = shown[1:].rpartition(".")[2] if bare != "doc" else shown[1:]
    if shown.isdigit():
        return nodes.inline(source, f"{bare} {shown}")
    if bare in _PROSE_ROLES or explicit:
        return nodes.inline(source, shown)
    return nodes.literal(source, shown.removeprefix(".") if shown[1:2].isalpha() else shown)


def _directive(directive: Any, name: str) -> list[Any]:
    """Return the text of an unknown directive: its argument and its content."""
    if name in _SKIPPED_DIRECTIVES:
        return []
    argument = directive.arguments[0].strip() if directive.arguments else ""
    content = "\n".join(directive.content)
    bare = name.rpartition(":")[2]
    if name in _CODE:
        language = _CODE[name] or argument
        code = f"{argument}\n{content}" if _CODE[name] and argument and name != "plot" else content
        caption = directive.options.get("caption") or ""
        block = nodes.literal_block(code, code, language=language)
        paragraphs = [nodes.paragraph("", "", nodes.inline(caption, caption))] if caption else []
        return [*paragraphs, block] if code.strip() else paragraphs
    if bare == "toctree":
        return _toctree(directive)
    if name in ("literalinclude", "automodule", "autosummary", "autoclass", "autofunction", "automethod") or (
        name.startswith("auto") and argument
    ):
        entries = [argument, *(line.strip() for line in directive.content)] if name == "autosummary" else [argument]
        paragraphs = [nodes.paragraph("", "", nodes.literal(entry, entry)) for entry in entries if entry]
        return [*paragraphs, *(_nested(directive) if name != "autosummary" else [])]
    if name in _LABELS:
        return _labelled(directive, _LABELS[name], argument)
    lead: list[Any] = []
    if argument:
        if ":" in name or bare in ("function", "class", "method", "attribute", "data", "exception", "option", "envvar"):
            lines = [line.strip().removesuffix("\\") for line in argument.split("\n")]
            lead = [nodes.paragraph("", "", nodes.strong("", "", nodes.literal(line, line))) for line in lines if line]
        else:
            inline, messages = directive.state.inline_text(argument, directive.lineno)
            lead = [nodes.paragraph(argument, "", *inline), *messages]
    return [*lead, *_shown_options(directive), *_nested(directive)]


def _shown_options(directive: Any) -> list[Any]:
    """Return the visible options of a directive, such as the version of a change log entry."""
    options = {name.lower(): " ".join(str(value).split()) for name, value in directive.options.items()}
    titles = [options[name] for name in ("title", "caption", "header") if options.get(name)]
    facts = [f"{name}: {options[name]}" for name in _FACTS if options.get(name)]
    paragraphs = [nodes.paragraph("", "", nodes.strong(title, title)) for title in titles]
    return [*paragraphs, nodes.paragraph("", "", nodes.Text(", ".join(facts)))] if facts else paragraphs


def _nested(directive: Any) -> list[Any]:
    if not directive.content:
        return []
    node = nodes.container()
    directive.state.nested_parse(directive.content, directive.content_offset, node, match_titles=False)
    return list(node.children)


def _labelled(directive: Any, label: str, argument: str) -> list[Any]:
    """Return an admonition with its own title, such as `Added in version 1.2`."""
    version, rest = "", argument
    if "version" in label.lower() and argument:
        version, rest = [*argument.split(None, 1), ""][:2]
    title = f"{label} {version}".strip()
    inline, messages = directive.state.inline_text(rest, directive.lineno) if rest.strip() else ([], [])
    first = [nodes.paragraph(rest, "", *inline)] if inline else []
    return [nodes.admonition("", nodes.title(title, title), *first, *messages, *_nested(directive))]


def _toctree(directive: Any) -> list[Any]:
    items = []
    for line in directive.content:
        entry = line.strip()
        if entry and not entry.startswith(":"):
            explicit = _EXPLICIT.match(entry)
            shown = explicit[1] if explicit else entry
            items.append(nodes.list_item("", nodes.paragraph("", "", nodes.inline(shown, shown))))
    caption = directive.options.get("caption") or ""
    lead = [nodes.paragraph("", "", nodes.strong(caption, caption))] if caption else []
    return [*lead, nodes.bullet_list("", *items)] if items else lead


# The tree as Markdown.


def _blocks(children: Iterable[Any], level: int) -> Iterator[str]:
    """Yield the Markdown of nodes. level: the heading level of the next section."""
    for node in children:
        yield from (block for block in _block(node, level) if block.strip())


def _block(node: Any, level: int) -> Iterator[str]:
    kind = node.tagname
    render = _RENDERED.get(kind)
    if render is not None:
        yield from render(node, level)
    elif kind in _ADMONITIONS:
        yield _quoted(_led(f"**{kind.capitalize()}**", list(_blocks(node.children, level))))
    elif kind in _SILENT:
        return
    elif not node.children or kind in _INLINE:
        yield _paragraph_text([node])
    else:
        yield from _blocks(node.children, level)


def _section(node: Any, level: int) -> Iterator[str]:
    if "system-messages" not in node.get("classes", ()):
        yield from _blocks(node.children, level + 1)


def _heading(node: Any, level: int) -> Iterator[str]:
    if node.parent is not None and node.parent.tagname in ("section", "document"):
        hashes = "#" * min(max(level - 1 if node.parent.tagname == "section" else 1, 1), 6)
        yield f"{hashes} {heading_text(_one_line(node.children))}"
    else:
        yield f"**{_one_line(node.children)}**"


def _subtitle(node: Any, level: int) -> Iterator[str]:
    yield f"**{_one_line(node.children)}**"


def _paragraph(node: Any, level: int) -> Iterator[str]:
    yield _paragraph_text(node.children)


def _literal(node: Any, level: int) -> Iterator[str]:
    text = node.astext().strip("\n")
    classes = [name for name in node.get("classes", ()) if name not in ("code", "highlight")]
    language = node.get("language") or (classes[0] if "code" in node.get("classes", ()) and classes else "")
    language = language if re.fullmatch(r"[\w+#.-]{1,30}", language) else ""
    if node.tagname == "doctest_block":
        language = "python"
    yield fenced(text, language)


def _math(node: Any, level: int) -> Iterator[str]:
    yield f"$$\n{node.astext().strip()}\n$$"


def _bullets(node: Any, level: int) -> Iterator[str]:
    yield _items((("- ", item.children) for item in node.children), level)


def _numbered(node: Any, level: int) -> Iterator[str]:
    items = list(enumerate(node.children, node.get("start", 1)))
    form = node.get("enumtype", "arabic")
    if not form.endswith("alpha"):
        yield _items(((f"{number}. ", item.children) for number, item in items), level)
        return
    first = ord("a" if form == "loweralpha" else "A")
    yield "\n".join(
        _item(f"- {chr(first + (number - 1) % 26)}. ", "  ", list(_blocks(item.children, level)))
        for number, item in items
    )


def _items(items: Iterable[tuple[str, Iterable[Any]]], level: int) -> str:
    return _list([_item(mark, " " * len(mark), list(_blocks(children, level))) for mark, children in items])


def _list(items: list[str]) -> str:
    return ("\n\n" if any("\n\n" in item for item in items) else "\n").join(items)


def _item(mark: str, indent: str, blocks: list[str]) -> str:
    if not blocks:
        return mark.rstrip()
    joined = blocks[0]
    for before, block in pairwise(blocks):
        loose = not (block.startswith(("- ", "1. ")) and "\n\n" not in block and not before.startswith(("- ", "`")))
        joined += ("\n\n" if loose else "\n") + block
    return mark + _indented(joined, indent)


def _definitions(node: Any, level: int) -> Iterator[str]:
    """Yield terms with their definitions as list items, since Markdown has no definition lists."""
    items = []
    for item in node.children:
        terms = [f"**{_one_line(child.children)}**" for child in item.children if child.tagname == "term"]
        classifiers = [_one_line(child.children) for child in item.children if child.tagname == "classifier"]
        body = [block for child in item.children if child.tagname == "definition" for block in _blocks([child], level)]
        term = ", ".join(terms) + (f" ({', '.join(classifiers)})" if classifiers else "")
        items.append(_item("- ", "  ", _led(term, body)))
    yield "\n\n".join(items)


def _led(term: str, body: list[str]) -> list[str]:
    """Join a term to the paragraph that follows it; before any other block, the term is a block of its own."""
    if body and not re.match(r"[-#>`|$]|\d+\. |!\[", body[0]):
        return [f"{term}: {body[0]}", *body[1:]]
    return [term, *body]


def _fields(node: Any, level: int) -> Iterator[str]:
    yield _list([_field(field, level) for field in node.children if field.tagname == "field"])


def _field(field: Any, level: int) -> str:
    name = _one_line(field.children[0].children)
    body = list(_blocks(field.children[1].children, level)) if len(field.children) > 1 else []
    return _item("- ", "  ", _led(f"**{name}**" if name else "", body))


def _long_fields(node: Any, level: int) -> Iterator[str]:
    for field in node.children:
        if field.tagname == "field" and len(" ".join(field.children[1].astext().split())) > _MAX_FIELD:
            yield _field(field, level)


def _options(node: Any, level: int) -> Iterator[str]:
    items = []
    for item in node.children:
        group, description = item.children[0], item.children[1]
        names = ", ".join(_code(option.astext().replace("\n", " ")) for option in group.children)
        items.append(_item("- ", "  ", _led(names, list(_blocks(description.children, level)))))
    yield "\n".join(items)


def _quote(node: Any, level: int) -> Iterator[str]:
    yield _quoted(list(_blocks(node.children, level)))


def _attribution(node: Any, level: int) -> Iterator[str]:
    yield f"— {_one_line(node.children)}"


def _titled(node: Any, level: int) -> Iterator[str]:
    """Yield a topic, a sidebar or an admonition with a title; a table of contents is omitted."""
    if "contents" not in node.get("classes", ()):
        blocks = list(_blocks(node.children, level))
        yield _quoted(_led(blocks[0], blocks[1:]) if node.tagname == "admonition" and blocks else blocks)


def _quoted(blocks: list[str]) -> str:
    text = "\n\n".join(blocks)
    return "\n".join(f"> {line}".rstrip() for line in text.split("\n")) if text else ""


def _lines(node: Any, level: int) -> Iterator[str]:
    def lines(block: Any, indent: str) -> Iterator[str]:
        for child in block.children:
            if child.tagname == "line_block":
                yield from lines(child, indent + "    ")
            else:
                yield indent + _escaped_lines(_one_line(child.children))

    stripped = [line.lstrip() for line in lines(node, "")]
    yield "\n".join(f"{line}\\" if line and at + 1 < len(stripped) else line for at, line in enumerate(stripped))


def _footnote(node: Any, level: int) -> Iterator[str]:
    labels = [child.astext() for child in node.children if child.tagname == "label"]
    body = list(_blocks((child for child in node.children if child.tagname != "label"), level))
    label = f"\\[{_escaped(labels[0])}\\]" if labels else ""
    yield from ([f"{label} {body[0]}", *body[1:]] if body and label else [label, *body])


def _message(node: Any, level: int) -> Iterator[str]:
    """Yield the text that docutils dropped because of an error, without the error message."""
    if node.get("level", 0) < _ERROR:
        return
    for child in node.children:
        if child.tagname == "literal_block" and not child.astext().lstrip().startswith(".. |"):
            yield from _literal(child, 0)


def _image(node: Any, level: int) -> Iterator[str]:
    image = _inline_image(node)
    if image:
        yield image


def _table(node: Any, level: int) -> Iterator[str]:
    for child in node.children:
        if child.tagname == "title":
            yield f"**{_one_line(child.children)}**"
        elif child.tagname == "tgroup":
            yield _grid(child)
        else:
            yield from _block(child, level)


def _grid(group: Any) -> str:
    columns = max(sum(1 for child in group.children if child.tagname == "colspec"), 1)
    header: list[list[str]] = []
    body: list[list[str]] = []
    for part in group.children:
        if part.tagname in ("thead", "tbody"):
            (header if part.tagname == "thead" else body).extend(_grid_rows(part, columns))
    first = [" ".join(filter(None, column)) for column in zip(*header, strict=True)] if header else [""] * columns
    return table([first, *body])


def _grid_rows(part: Any, columns: int) -> Iterator[list[str]]:
    """Yield the rows of a table; a cell that spans several rows or columns fills only the first of them."""
    rows_below = [0] * columns  # the number of further rows that the cell above spans, by column
    for row in part.children:
        cells = [""] * columns
        at = 0
        for entry in row.children:
            while at < columns and rows_below[at]:
                at += 1
            if at >= columns:
                break
            cells[at] = _cell_text(entry)
            for column in range(at, min(at + 1 + entry.get("morecols", 0), columns)):
                rows_below[column] = entry.get("morerows", 0) + 1
            at += 1 + entry.get("morecols", 0)
        rows_below = [max(count - 1, 0) for count in rows_below]
        yield cells


def _cell_text(entry: Any) -> str:
    parts = []
    for child in entry.children:
        if child.tagname == "literal_block":
            parts.append(_code(" ".join(child.astext().split())))
        elif child.tagname == "paragraph":
            parts.append(_one_line(child.children))
        elif child.tagname in ("bullet_list", "enumerated_list"):
            parts.append("; ".join(_cell_text(item) for item in child.children))
        else:
            parts.append(" ".join(" ".join(_block(child, 6)).split()))
    return " ".join(filter(None, parts))


# Text within a block.


def _paragraph_text(children: Iterable[Any]) -> str:
    return _escaped_lines("".join(map(_inline, children)).strip())


def _escaped_lines(text: str) -> str:
    lines = [line.strip() for line in text.split("\n")]
    return "\n".join(guarded(line) for line in lines if line)


def _one_line(children: Iterable[Any]) -> str:
    return " ".join("".join(map(_inline, children)).split())


def _inline(node: Any) -> str:
    kind = node.tagname
    if kind == "#text":
        return _escaped(str(node.astext()))
    if kind in ("literal", "math"):
        return _code(node.astext()) if kind == "literal" else f"${node.astext()}$"
    if kind == "image":
        return _inline_image(node)
    if kind == "problematic":
        return _escaped(_unmarked(node.astext()))
    if kind in ("footnote_reference", "citation_reference"):
        return f"\\[{_escaped(node.astext())}\\]"
    if kind == "system_message" or kind in _SILENT:
        return ""
    inner = "".join(map(_inline, node.children))
    if kind in ("emphasis", "strong") and inner.strip():
        mark = "*" if kind == "emphasis" else "**"
        return f"{mark}{inner.strip()}{mark}"
    if kind == "reference":
        target = str(node.get("refuri", ""))
        plain = inner.strip()
        if target.startswith(("http://", "https://", "mailto:")) and not re.search(r"[\s()<>\\]", target):
            if plain in (_escaped(target), _escaped(target.removeprefix("mailto:"))):
                return target.removeprefix("mailto:")
            if plain and "](" not in plain:
                return f"[{plain}]({target})"
    return inner


def _unmarked(text: str) -> str:
    """Return the text of markup that docutils cannot resolve, such as Title for `Title`_."""
    role = _ROLE.match(text)
    if role:
        explicit = _EXPLICIT.match(role[1])
        return explicit[1] if explicit else role[1]
    return _QUOTED.sub(r"\1", text) if text.endswith("_") or text.startswith("`") else text


def _inline_image(node: Any) -> str:
    alt = " ".join(str(node.get("alt", "")).split())
    target = str(node.get("uri", ""))
    if not alt or alt == target:
        return ""
    shown = re.search(r"[\s()<>\\]", target) is None and len(target) <= 500 and not target.startswith("data:")
    return f"![{escaped(alt, '[', ']', brackets=True)}]({target})" if shown else _escaped(alt)


def _escaped(text: str) -> str:
    """Escape a piece of text. Markup may be next to it, so characters at its ends are escaped too."""
    return escaped(text, ".", ".")


def _code(text: str) -> str:
    return code_span(" ".join(text.split()))


def _indented(text: str, indent: str) -> str:
    first, *rest = text.split("\n")
    return "\n".join([first, *(indent + line if line else "" for line in rest)])


_ADMONITIONS = frozenset("attention caution danger error hint important note tip warning".split())  # noqa: SIM905
_SILENT = frozenset(
    "comment target substitution_definition pending meta decoration raw label colspec generated".split()  # noqa: SIM905
)
_INLINE = frozenset("#text inline literal emphasis strong reference problematic".split())  # noqa: SIM905
_RENDERED: dict[str, Callable[[Any, int], Iterator[str]]] = {
    "admonition": _titled,
    "attribution": _attribution,
    "block_quote": _quote,
    "bullet_list": _bullets,
    "caption": _paragraph,
    "citation": _footnote,
    "definition_list": _definitions,
    "docinfo": _long_fields,
    "doctest_block": _literal,
    "enumerated_list": _numbered,
    "field_list": _fields,
    "footnote": _footnote,
    "image": _image,
    "line_block": _lines,
    "literal_block": _literal,
    "math_block": _math,
    "option_list": _options,
    "paragraph": _paragraph,
    "rubric": _subtitle,
    "section": _section,
    "sidebar": _titled,
    "subtitle": _subtitle,
    "system_message": _message,
    "table": _table,
    "title": _heading,
    "topic": _titled,
}


# Title and metadata.


def _title(document: Any) -> str:
    title = document.get("title", "")
    for node in document.findall():
        if title:
            break
        if node.tagname == "title" and node.parent.tagname in ("document", "section"):
            title = node.astext()
    return title_of(title)


def _metadata(document: Any) -> dict[str, Any]:
    metadata: dict[str, Any] = {}
    for info in document.findall(lambda node: node.tagname == "docinfo"):
        for node in info.children:
            if node.tagname == "field":
                name, value = node.children[0].astext(), " ".join(node.children[1].astext().split())
            else:
                name, value = node.tagname, " ".join(node.astext().split())
            if node.tagname == "authors":
                authors = (" ".join(author.astext().split()) for author in node.children)
                metadata["author"] = [author for author in authors if 0 < len(author) <= _MAX_FIELD]
            elif 0 < len(value) <= _MAX_FIELD and 0 < len(name) <= _MAX_NAME and name not in ("orphan", "tocdepth"):
                metadata.setdefault(name.strip().lower().replace(" ", "_"), value)
    return metadata
