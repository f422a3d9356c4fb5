"""Source code as Markdown: each function, class and method is a section; the code itself is unchanged.

A file becomes headings with the names of definitions (`class Store`, `def open`), each above fenced code. Every line
occurs once, in order; comments and decorators belong to the definition below them. Code between definitions is a
section named after its first line.

tree-sitter finds definitions, with one grammar per language (MIT, 0.1 to 1 MB each; only SQL's is larger). It parses
every language at 10 MB/s, continues after errors, and does not recurse. Pygments builds no syntax trees; Python's `ast`
parses only Python, fails on code of another version, and its result depends on the interpreter;
`tree-sitter-language-pack` downloads its parsers on use, so its content is not fixed. No package provides R's grammar,
so R functions are detected by their first and last lines.
"""

from __future__ import annotations

import re
import warnings
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING, BinaryIO, NamedTuple

from indexmill.extras import not_installed
from tasks.stages.ingest.documents import WordCounts
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError, read_text
from tasks.stages.ingest.formats.markdown_marks import fenced
from tasks.stages.ingest.formats.word_count import words_of
from tasks.text.markdown import code_span

if TYPE_CHECKING:
    from tree_sitter import Node, Parser

MAX_BYTES = 3_000_000
MAX_LINE = 20_000
"""The maximum length of a line in characters; longer lines are minified code or data."""
MAX_MEAN_LINE = 500
_FEW_BYTES = 50_000
_MAX_HEADING = 90
_FEW_LETTERS = 3  # a line with at most this many letters, such as a closing `end` or `1;`, names no section
_MAX_DEPTH = 4  # the maximum depth of nested headings
_MAX_WRAPPED = 100


class Language(NamedTuple):
    """A language. module: the grammar's module; empty to detect functions by lines. fence: its name in fences."""

    suffixes: tuple[str, ...]
    module: str
    function: str = "language"
    fence: str = ""

    @property
    def libraries(self) -> tuple[str, ...]:
        """The packages that parse the language; empty if functions are detected by lines."""
        return ("tree-sitter", self.module.replace("_", "-")) if self.module else ()


LANGUAGES: dict[str, Language] = {
    "c": Language((".c",), "tree_sitter_c"),
    "c-header": Language((".h",), "tree_sitter_cpp", fence="c"),
    "cpp": Language((".cpp", ".cc", ".cxx", ".hpp", ".hh", ".hxx"), "tree_sitter_cpp"),
    "csharp": Language((".cs",), "tree_sitter_c_sharp"),
    "go": Language((".go",), "tree_sitter_go"),
    "java": Language((".java",), "tree_sitter_java"),
    "javascript": Language((".js", ".jsx", ".mjs", ".cjs"), "tree_sitter_javascript"),
    "julia": Language((".jl",), "tree_sitter_julia"),
    "kotlin": Language((".kt", ".kts"), "tree_sitter_kotlin"),
    "lua": Language((".lua",), "tree_sitter_lua"),
    "perl": Language((".pl", ".pm"), "tree_sitter_perl"),
    "php": Language((".php",), "tree_sitter_php", "language_php"),
    "python": Language((".py", ".pyi"), "tree_sitter_python"),
    "r": Language((".r",), ""),
    "ruby": Language((".rb",), "tree_sitter_ruby"),
    "rust": Language((".rs",), "tree_sitter_rust"),
    "scala": Language((".scala",), "tree_sitter_scala"),
    "shell": Language((".sh", ".bash"), "tree_sitter_bash"),
    "sql": Language((".sql",), "tree_sitter_sql"),
    "swift": Language((".swift",), "tree_sitter_swift"),
    "tsx": Language((".tsx",), "tree_sitter_typescript", "language_tsx"),
    "typescript": Language((".ts", ".mts", ".cts"), "tree_sitter_typescript", "language_typescript"),
}

# Node types of all grammars. Where definitions occur (at top level and in class bodies), no node type has different
# meanings in two languages.

_FUNCTIONS = frozenset(
    """
    function_definition function_declaration generator_function_declaration function_item method_declaration
    method_definition method singleton_method constructor_declaration compact_constructor_declaration
    destructor_declaration operator_declaration conversion_operator_declaration property_declaration
    indexer_declaration init_declaration deinit_declaration subscript_declaration secondary_constructor
    macro_definition preproc_function_def subroutine_declaration_statement method_declaration_statement
    create_function create_procedure create_table create_view create_materialized_view create_trigger create_type
    lexical_declaration variable_declaration assignment_statement assignment expression_statement
    """.split()  # noqa: SIM905
)
_CONTAINERS = frozenset(
    """
    class_definition class_declaration abstract_class_declaration interface_declaration enum_declaration
    record_declaration struct_declaration annotation_type_declaration namespace_declaration namespace_definition
    class_specifier struct_specifier union_specifier enum_specifier type_definition type_declaration struct_item
    enum_item union_item impl_item trait_item mod_item foreign_mod_item class module object_definition trait_definition
    enum_definition package_object given_definition extension_definition protocol_declaration object_declaration
    companion_object trait_declaration module_definition struct_definition abstract_definition internal_module
    class_statement
    """.split()  # noqa: SIM905
)
_TRANSPARENT = frozenset(
    "preproc_if preproc_ifdef preproc_else preproc_elif linkage_specification ERROR export_declaration".split()  # noqa: SIM905
)
_WRAPPERS = frozenset(
    "decorated_definition export_statement template_declaration statement ambient_declaration declaration".split()  # noqa: SIM905
)
_MAYBE_FUNCTIONS = frozenset(
    "lexical_declaration variable_declaration assignment_statement assignment expression_statement".split()  # noqa: SIM905
)
_FUNCTION_VALUES = frozenset(
    "arrow_function function_expression generator_function function_definition compound_statement class".split()  # noqa: SIM905
)
_BODIES = frozenset(
    """
    block class_body interface_body enum_body declaration_list field_declaration_list body_statement template_body
    enum_class_body statement_block enum_body_declarations with_template_body protocol_body
    """.split()  # noqa: SIM905
)
_BEFORE = re.compile(r"modifiers?$|annotation|attribute|decorator|comment|template_parameter_list")
_ATTACHED = re.compile(r"comment|attribute_item|decorator|attribute_list|annotation")
_NAMED = ("object_reference", "signature", "type_head")

_R_FUNCTION = re.compile(r"([\w.]+)\s*(?:<-|=)\s*function\b")
_LETTER = re.compile(r"[^\W_]")
_COMMENT = re.compile(r"^\s*(?:(?:#+(?![A-Za-z])|//+|/\*+|\*+|--+|%+|;+|\"\"\"|''')[:!*=%~-]*)?\s*|\s*\*+/\s*$")
_COMMENT_LINE = re.compile(r"\s*(?:#(?:\W|$)|//|/\*|\*|--|%|$)")
_CONDITION = re.compile(r"\s*#\s*(?:if|ifdef|ifndef|elif|else|endif)\b")


@dataclass(frozen=True)
class _Definition:
    """A definition on the lines `first` to `last`, both included."""

    first: int
    last: int
    heading: str
    members: tuple[_Definition, ...] = ()


def extract(file: BinaryIO, limits: ExtractionLimits, dialect: str) -> Extracted:
    """Convert a code file to Markdown. dialect: a key of `LANGUAGES`. See `Extractor`."""
    language = LANGUAGES[dialect]
    most = min(MAX_BYTES, limits.text_bytes)
    text = read_text(file, most, f"the file is over {most:,} bytes: generated code or data")
    text = text.replace("\r\n", "\n")
    if "\x00" in text:
        raise UnreadableError("nul", f"at character {text.index(chr(0)):,}")
    lines = text.split("\n")
    longest = max(map(len, lines))
    if longest > MAX_LINE:
        raise UnreadableError("too-large", f"a line has {longest:,} characters: minified code or data")
    if len(text) > _FEW_BYTES and len(text) > MAX_MEAN_LINE * len(lines):
        raise UnreadableError("too-large", f"{len(text) // len(lines):,} characters per line: minified code or data")
    if language.module:
        tree = _parser(dialect).parse(text.encode("utf-8"))
        definitions = list(_definitions(tree.root_node, lines, 0, len(lines) - 1, 0))
    else:
        definitions = list(_functions_of_r(lines))
    fence = language.fence or dialect
    parts = list(_sections(lines, 0, len(lines) - 1, definitions, fence, 0))
    return Extracted("\n\n".join(parts) + "\n" if parts else "", words=WordCounts(words_of(text)))


def _sections(
    lines: list[str], first: int, last: int, members: Iterable[_Definition], fence: str, depth: int
) -> Iterator[str]:
    """Yield the Markdown of a range of lines. Lines before the first member have no heading."""
    at = first
    for member in members:
        begin = member.first
        if at > first and _is_comment(lines[at:begin]):
            begin = at  # the comment may be the title of a group of functions
        yield from _between(lines[at:begin], fence, depth if at > first else None)
        yield _heading(member.heading, depth)
        yield from _sections(lines, begin, member.last, member.members, fence, depth + 1)
        at = member.last + 1
    rest = lines[at : last + 1]
    yield from _between(rest, fence, depth if at > first and not _is_comment(rest) else None)


def _is_comment(lines: list[str]) -> bool:
    return all(_COMMENT_LINE.match(line) for line in lines)


def _between(lines: list[str], fence: str, depth: int | None) -> Iterator[str]:
    """Yield code outside definitions. A lone bracket gets no heading. depth: the heading's; None for no heading."""
    start, end = 0, len(lines)
    while start < end and not lines[start].strip():
        start += 1
    while end > start and not lines[end - 1].strip():
        end -= 1
    if start == end:
        return
    if depth is not None:
        uncommented = (_COMMENT.sub("", line) for line in lines[start:end] if not _CONDITION.match(line))
        name = next((line for line in uncommented if len(_LETTER.findall(line)) > _FEW_LETTERS), "")
        if name:
            yield _heading(name, depth)
    yield fenced("\n".join(lines[start:end]), fence)


def _heading(name: str, depth: int) -> str:
    """Return a heading with the name as code, since names such as `__init__` would be emphasis in Markdown."""
    name = " ".join(name.split())
    if len(name) > _MAX_HEADING:
        name = name[:_MAX_HEADING].rpartition(" ")[0] or name[:_MAX_HEADING]
    return f"{'#' * (depth + 2)} {code_span(name)}"


# Definitions in a tree.


@cache
def _parser(dialect: str) -> Parser:
    language = LANGUAGES[dialect]
    try:
        import tree_sitter

        grammar = getattr(import_module(language.module), language.function)
    except ImportError as error:
        raise not_installed(f"code in {dialect}", "tree_sitter", error) from error
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)  # some grammars pass the pointer as a number
        return tree_sitter.Parser(tree_sitter.Language(grammar()))


def _definitions(parent: Node, lines: list[str], first: int, last: int, depth: int) -> Iterator[_Definition]:
    """Yield a node's definitions from line `first` to line `last`, if they share no line with other code."""
    free = first  # the first line after the previous definition
    attached: tuple[int, int] | None = None  # the lines of comments and decorators directly above
    for node in _flat(parent):
        start, end = node.start_point[0], _last_line(node)
        if _ATTACHED.search(node.type):
            above = attached[0] if attached and attached[1] + 1 >= start else start
            attached = (above, end)
            continue
        begin = attached[0] if attached and attached[1] + 1 >= start else start
        attached = None
        inner = _unwrapped(node)
        if inner is None or end == start or begin < free or end > last:
            continue
        if lines[start].encode("utf-8")[: node.start_point[1]].strip():
            continue
        heading = _name_of(inner)
        if not heading:
            continue
        members: tuple[_Definition, ...] = ()
        if inner.type in _CONTAINERS and depth + 1 < _MAX_DEPTH:
            members = tuple(_definitions(_body(inner), lines, start + 1, end, depth + 1))
        yield _Definition(begin, end, heading, members)
        free = end + 1


def _last_line(node: Node) -> int:
    line, column = node.end_point
    return line - 1 if column == 0 and line > node.start_point[0] else line


def _flat(parent: Node) -> Iterator[Node]:
    """Yield a node's named children in order, with nodes such as `#if` blocks replaced by their children."""
    waiting = [iter(parent.named_children)]
    while waiting:
        node = next(waiting[-1], None)
        if node is None:
            waiting.pop()
        elif node.type in _TRANSPARENT and len(waiting) < _MAX_WRAPPED:
            body = node.child_by_field_name("body")
            waiting.append(iter((body or node).named_children))
        else:
            yield node


def _unwrapped(node: Node) -> Node | None:
    """Return the node itself if it is a definition, or the definition that it wraps; None for other code."""
    for _ in range(4):
        if node.type in _MAYBE_FUNCTIONS and not _has_function_value(node):
            return None
        if node.type in _FUNCTIONS or node.type in _CONTAINERS:
            return node
        if node.type not in _WRAPPERS:
            return None
        inner = node.child_by_field_name("definition") or node.child_by_field_name("declaration")
        if inner is None:
            definitions = [
                child for child in node.named_children if child.type in _FUNCTIONS or child.type in _CONTAINERS
            ]
            inner = definitions[-1] if definitions else None
        if inner is None:
            return None
        node = inner
    return None


def _has_function_value(node: Node) -> bool:
    """Return True if a statement assigns a function: `const f = () => {...}` or `exports.f = function () {...}`."""
    for _ in range(4):
        if node.type in ("variable_declarator", "assignment_expression", "assignment", "expression_list"):
            value = node.child_by_field_name("value") or node.child_by_field_name("right") or _last(node)
        else:
            value = _last(node)
        if value is None:
            return False
        if value.type in _FUNCTION_VALUES:
            return True
        node = value
    return False


def _last(node: Node) -> Node | None:
    return node.named_children[-1] if node.named_child_count else None


def _body(node: Node) -> Node:
    body = node.child_by_field_name("body")
    if body is not None:
        return body
    bodies = [child for child in node.named_children if child.type in _BODIES]
    return bodies[-1] if bodies else node


def _name_of(node: Node) -> str:
    """Return a definition from its beginning to its name, without modifiers: `class Store`, `int main`."""
    begin = node.start_byte
    for child in node.children:
        if not _BEFORE.search(child.type):
            begin = child.start_byte
            break
    text = node.text or b""
    end = _name_end(node)
    source = text[begin - node.start_byte :].decode("utf-8", "replace")
    if node.type == "type_definition" and "{" in source:  # typedef struct {...} name
        declarator = node.child_by_field_name("declarator")
        return f"{source.partition('{')[0].strip()} {(declarator.text or b'').decode() if declarator else ''}".strip()
    if (called := _called(node)) is not None:
        return called
    if end is None:
        return re.split(r"[{(:\n]|\bdo\b", source, maxsplit=1)[0].strip()
    return text[begin - node.start_byte : end - node.start_byte].decode("utf-8", "replace").strip()


def _called(node: Node) -> str | None:
    """Return the function and first string of a call, such as `describe("a store")`; None for other statements."""
    call = _last(node) if node.type == "expression_statement" else None
    if call is None or call.type != "call_expression":
        return None
    function, arguments = call.child_by_field_name("function"), call.child_by_field_name("arguments")
    if function is None or arguments is None:
        return None
    first = next((child for child in arguments.named_children if child.type in ("string", "template_string")), None)
    texts = [(node.text or b"").decode("utf-8", "replace") for node in (function, first) if node is not None]
    return f"{texts[0]}({texts[1] if len(texts) > 1 else ''})"


def _name_end(node: Node) -> int | None:
    if node.type == "impl_item":
        of = node.child_by_field_name("type")
        return of.end_byte if of else None
    name = node.child_by_field_name("name")
    if name is not None:
        return name.end_byte
    declarator = node.child_by_field_name("declarator")
    while declarator is not None:
        inner = declarator.child_by_field_name("declarator")
        if inner is None:
            inner = next((child for child in declarator.named_children if child.type.endswith("declarator")), None)
        if inner is None:
            return declarator.end_byte
        declarator = inner
    for child in node.named_children:
        if child.type in ("variable_declarator", "type_spec", "type_alias", "assignment_expression", "assignment"):
            named = child.child_by_field_name("name") or child.child_by_field_name("left")
            return named.end_byte if named else None
        if child.type in _NAMED:
            inner = child.named_children[0] if child.named_child_count else child
            bare = inner.named_children[0] if inner.type == "call_expression" and inner.named_child_count else child
            return bare.end_byte
    target = node.named_children[0] if node.named_child_count else None
    return target.end_byte if target is not None and node.type in _MAYBE_FUNCTIONS else None


def _functions_of_r(lines: list[str]) -> Iterator[_Definition]:
    """Yield the functions of an R file: from `name <- function` at a line's start to the next closing bracket."""
    at = 0
    while at < len(lines):
        match = _R_FUNCTION.match(lines[at])
        end = at
        if match:
            while end + 1 < len(lines) and not lines[end].startswith(("}", ")")):
                if end > at and _R_FUNCTION.match(lines[end]):
                    end -= 1
                    break
                end += 1
            if end > at:
                begin = at
                while begin and lines[begin - 1].startswith("#"):
                    begin -= 1
                yield _Definition(begin, end, match[1])
        at = end + 1
