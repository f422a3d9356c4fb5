"""Jupyter notebooks, nbformat 3 and 4: text cells unchanged, code and its output in fences.

The file is JSON and is read with the standard library. nbformat and nbconvert (BSD) validate, upgrade and render with
jsonschema, traitlets and Jinja, in time that grows with the outputs, while only a dozen keys of the format matter here.
Pictures, HTML, widgets and tracebacks are omitted; only the beginning of a cell's output is included.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from tasks.stages.ingest.documents import Location, WordCounts
from tasks.stages.ingest.formats.extraction import (
    Extracted,
    ExtractionLimits,
    UnreadableError,
    read_text,
)
from tasks.stages.ingest.formats.front_matter import FrontMatter, read_front_matter
from tasks.stages.ingest.formats.markdown_marks import fenced
from tasks.stages.ingest.formats.title_filter import first_heading, title_of
from tasks.stages.ingest.formats.word_count import count_words, without_targets, words_of

MAX_OUTPUT_LINES, MAX_OUTPUT = 40, 4_000
"""The maximum numbers of lines and of characters of a code cell's outputs."""
_LINE = 500  # the maximum number of characters of an output line
_TIMES = 20  # the file may be this many times as large as the limit for its text, since pictures are base64
_MORE = "…"

_ESCAPE = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[@-Z\\^_])")
_CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")
_FENCE = re.compile(r"^ {0,3}(`{3,}|~{3,})")
_PICTURE = re.compile(r"!\[([^\[\]]{0,500})\]\((?:attachment:|data:)[^()\s]*(?:\s+\"[^\"\n]{0,300}\")?\)")
_REPR = re.compile(r"<[\w.]+(?: [^<>]*)? at 0x[0-9a-fA-F]+>|<Figure size [^<>]*>|<IPython\.[^<>]*>|\[?<matplotlib\..*")
_RST = re.compile(
    r"^\.\. (?:[\w:+-]+::|_[^\n]{1,200}:)(?:\s|$)|^\S[^\n]{0,200}\n([=~^\"+*#-])\1{3,200}[ \t]*$", re.MULTILINE
)
_MAX_RST = 100_000
_NAME = re.compile(r"[\w+#.-]{1,30}")
_MAGICS = {name: name for name in ("bash", "html", "javascript", "latex", "perl", "ruby", "sql")}
_MAGICS |= {"sh": "bash", "js": "javascript", "R": "r", "writefile": ""}
"""The languages of cells, by the magic command in the first line."""


def extract(file: BinaryIO, limits: ExtractionLimits) -> Extracted:
    """Convert a notebook to Markdown, with a location for each cell that has text. See `Extractor`."""
    notebook = _loaded(file, limits)
    cells = _cells(notebook)
    if len(cells) > limits.pages * 10:
        raise UnreadableError("too-large", f"it has {len(cells):,} cells; at most {limits.pages * 10:,} are read")
    metadata = _object(notebook.get("metadata"))
    language = _language(metadata, cells)
    in_file, outputs_left_out = _words(cells)
    of_first = _source_words(cells[:1])
    front = _take_front_matter(cells)
    in_front = of_first.total() - _source_words(cells[:1]).total()
    words = WordCounts(in_file, {"output": outputs_left_out, "front-matter": in_front})
    parts: list[str] = []
    locations: list[Location] = []
    length = written = 0
    for number, cell in enumerate(cells, 1):
        text = "\n\n".join(_cell(cell, language, limits))
        if not text:
            continue
        if parts:
            parts.append("\n\n")
            length += 2
        locations.append(Location(length, number))
        parts.append(text)
        length += len(text)
        written += len(text.encode("utf-8", "surrogatepass"))
        if written > limits.text_bytes:
            raise UnreadableError("too-large", f"its text is over {limits.text_bytes:,} bytes")
    text = "".join(parts)
    if "\x00" in text:
        raise UnreadableError("nul", "in a cell")
    if not text:
        raise UnreadableError("empty-file", "no cell has text")
    fields = {**front.metadata, **_metadata(metadata, language)}
    title = title_of(str(metadata.get("title") or fields.pop("title", None) or "")) or _first_heading(cells)
    fields.pop("title", None)
    return Extracted(text + "\n", title, fields, tuple(locations), front.left_out, words)


def _source_words(cells: Sequence[Mapping[str, Any]]) -> Counter[str]:
    sources = (_text(cell.get("source", cell.get("input"))) for cell in cells)
    return words_of(without_targets("\n".join(sources)))


def _words(cells: Sequence[Mapping[str, Any]]) -> tuple[Counter[str], int]:
    """Return the words of all cells, and the number of words of outputs that are left out."""
    words = _source_words(cells)
    shown = in_outputs = 0
    for cell in cells:
        outputs = _list(cell.get("outputs"))
        printed = words_of("\n".join(_printed(_object(output), everything=True) for output in outputs))
        words.update(printed)
        in_outputs += printed.total()
        shown += count_words(_outputs(outputs).replace(_MORE, ""))
    return words, in_outputs - shown


def _loaded(file: BinaryIO, limits: ExtractionLimits) -> Mapping[str, Any]:
    most = limits.text_bytes * _TIMES
    text = read_text(file, most, f"the file is over {most:,} bytes; see corpus.max_document_bytes")
    try:
        notebook = json.loads(text)
    except RecursionError as error:
        raise UnreadableError("hostile-file", "the JSON is nested too deeply") from error
    except json.JSONDecodeError as error:
        raise UnreadableError("unreadable-file", f"not JSON: {error}") from error
    except ValueError as error:  # a number with more digits than Python converts
        raise UnreadableError("unreadable-file", f"not JSON: {type(error).__name__}") from error
    if not isinstance(notebook, dict) or not isinstance(notebook.get("nbformat", 4), int):
        raise UnreadableError("unreadable-file", "it is JSON, but not a notebook")
    if "cells" not in notebook and "worksheets" not in notebook:
        raise UnreadableError("unreadable-file", "it is JSON, but not a notebook: it has neither cells nor worksheets")
    return notebook


def _cells(notebook: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    """Return the cells of a notebook; in nbformat 3, the cells of all its worksheets."""
    if "cells" in notebook:
        cells = _list(notebook["cells"])
    else:
        sheets = _list(notebook.get("worksheets"))
        cells = [cell for sheet in sheets if isinstance(sheet, dict) for cell in _list(sheet.get("cells"))]
    return [_object(cell) for cell in cells]


def _cell(cell: Mapping[str, Any], language: str, limits: ExtractionLimits) -> Iterator[str]:
    kind = cell.get("cell_type")
    if kind == "code":
        source = _text(cell.get("source", cell.get("input")))
        if source.strip():
            yield fenced(_trimmed(source), _of_cell(source, str(cell.get("language") or language)))
        printed = _outputs(_list(cell.get("outputs")))
        if printed:
            yield fenced(printed, "text")
        return
    source = _trimmed(_text(cell.get("source")))
    if not source:
        return
    if kind == "heading":  # nbformat 3
        level = cell.get("level", 1)
        yield f"{'#' * min(max(level if isinstance(level, int) else 1, 1), 6)} {' '.join(source.split())}"
    elif kind == "raw" and _is_rst(cell, source):
        from tasks.stages.ingest.formats.restructured_text import markdown_of  # few notebooks need docutils

        try:
            yield markdown_of(source, limits).text.strip("\n")
        except UnreadableError:
            yield fenced(source, "rst")
    elif kind == "markdown" or (kind in ("raw", "html") and not source.lstrip().startswith("<")):
        yield _closed(_PICTURE.sub(lambda match: match[1], source))


def _is_rst(cell: Mapping[str, Any], source: str) -> bool:
    """Return whether a raw cell is reStructuredText, as in nbsphinx: by its metadata, else by typical markup."""
    stated = _object(cell.get("metadata"))
    kind = stated.get("raw_mimetype", stated.get("format"))
    if isinstance(kind, str) and kind:
        return kind.lower() in ("text/restructuredtext", "text/x-rst")
    return _RST.search(source) is not None and len(source) <= _MAX_RST


def _closed(source: str) -> str:
    """Close an open fence of a Markdown cell, since each cell is rendered separately."""
    fence = ""
    for line in source.split("\n"):
        mark = _FENCE.match(line)
        if mark and not fence:
            fence = mark[1]
        elif mark and mark[1].startswith(fence) and line.strip(" ") == mark[1]:
            fence = ""
    return f"{source}\n{fence}" if fence else source


def _of_cell(source: str, language: str) -> str:
    if source.startswith("%%"):
        magic = _NAME.match(source, 2)
        if magic and magic[0] in _MAGICS:
            return _MAGICS[magic[0]]
    named = _NAME.fullmatch(language)
    return named[0].lower() if named else ""


def _outputs(outputs: Sequence[Any]) -> str:
    """Return the beginning of the text that a cell printed or returned."""
    lines: list[str] = []
    size = 0
    for output in outputs:
        for line in _printed(_object(output)).split("\n"):
            line = line.rstrip()
            if not line and (not lines or not lines[-1]):
                continue
            if len(lines) == MAX_OUTPUT_LINES or size > MAX_OUTPUT:
                return "\n".join([*lines, _MORE])
            line = line if len(line) <= _LINE else line[:_LINE].rstrip() + _MORE
            lines.append(line)
            size += len(line)
    while lines and not lines[-1]:
        lines.pop()
    return "\n".join(lines)


def _printed(output: Mapping[str, Any], *, everything: bool = False) -> str:
    """Return the text of an output; without warnings and names of objects, unless `everything` is set."""
    kind = output.get("output_type")
    if kind == "stream":
        is_warning = output.get("name", output.get("stream")) == "stderr"
        return "" if is_warning and not everything else _plain(_text(output.get("text")))
    if kind in ("pyerr", "error"):
        name, value = (_plain(_text(output.get(key))) for key in ("ename", "evalue"))
        return f"{name}: {value}" if name else ""
    if kind in ("execute_result", "display_data", "pyout", "update_display_data"):
        data = output["data"] if isinstance(output.get("data"), dict) else output
        text = _text(data.get("text/plain", data.get("text")))
        for rich in ("text/markdown", "text/latex"):
            if rich in data and (not text.strip() or _REPR.match(text.strip())):
                return _plain(_text(data[rich]))
        return "" if _REPR.fullmatch(text.strip()) and not everything else _plain(text)
    return ""


def _plain(printed: str) -> str:
    """Return output as a terminal shows it: without escape sequences, and with only a progress bar's last state."""
    if "\x1b" in printed:
        printed = _ESCAPE.sub("", printed)
    printed = printed.replace("\r\n", "\n")
    if "\r" in printed:
        printed = "\n".join(line[line.rfind("\r", 0, len(line) - 1) + 1 :] for line in printed.split("\n"))
    return _CONTROL.sub("", printed)


def _take_front_matter(cells: list[Mapping[str, Any]]) -> FrontMatter:
    """Read the front matter in the first cell, as Quarto and nbdev write it, and remove it from the cell."""
    if cells and cells[0].get("cell_type") in ("markdown", "raw"):
        front = read_front_matter(_trimmed(_text(cells[0].get("source"))) + "\n")
        if front is not None:
            cells[0] = {**cells[0], "source": front.text}
            return front
    return FrontMatter({}, "", left_out=False)


def _first_heading(cells: Sequence[Mapping[str, Any]]) -> str:
    for cell in cells:
        source, kind = _text(cell.get("source")), cell.get("cell_type")
        if kind in ("heading", "markdown", "raw"):
            title = title_of(source) if kind == "heading" else first_heading(source)
            if title:
                return title
    return ""


def _language(metadata: Mapping[str, Any], cells: Sequence[Mapping[str, Any]]) -> str:
    """Return the kernel's language; in nbformat 3, the first code cell's language; `python` if none is stated."""
    for key, name in (("language_info", "name"), ("kernelspec", "language")):
        language = _object(metadata.get(key)).get(name)
        if isinstance(language, str) and _NAME.fullmatch(language):
            return language.lower()
    for cell in cells:
        language = cell.get("language")
        if cell.get("cell_type") == "code" and isinstance(language, str) and _NAME.fullmatch(language):
            return language.lower()
    return "python"


def _metadata(metadata: Mapping[str, Any], language: str) -> dict[str, Any]:
    fields: dict[str, Any] = {"programming_language": language}
    kernel = _object(metadata.get("kernelspec")).get("display_name")
    if isinstance(kernel, str) and 0 < len(kernel) <= _LINE and not _CONTROL.search(kernel):
        fields["kernel"] = kernel
    authors = [
        name.strip()
        for author in _list(metadata.get("authors"))[:100]
        if isinstance(name := author.get("name") if isinstance(author, dict) else author, str)
        and name.strip()
        and len(name) <= _LINE
        and not _CONTROL.search(name)
    ]
    return {**fields, "author": authors} if authors else fields


def _trimmed(source: str) -> str:
    """Remove blank lines around a cell's source, and convert its line endings to line feeds."""
    source = source.replace("\r\n", "\n").rstrip()
    return source[source.rfind("\n", 0, len(source) - len(source.lstrip())) + 1 :]


def _text(value: Any) -> str:
    """Return a field as a string, joined if it is a list of lines; an empty string for any other value."""
    if isinstance(value, list):
        return "".join(part for part in value if isinstance(part, str))
    return value if isinstance(value, str) else ""


def _object(value: Any) -> Mapping[str, Any]:
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[Any]:
    return value if isinstance(value, list) else []
