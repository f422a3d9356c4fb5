"""Front matter of a Markdown file: YAML between two rules, or TOML between two lines of plus signs, at its beginning.

A few hundred bytes of YAML can expand to gigabytes (aliases and merge keys), or nest so deeply that the C library,
which recurses, crashes its process. So the limits are first checked on the stream of parser events, and a tree is built
only if the text is within them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from typing import Any, NamedTuple

import yaml

from tasks.stages.ingest.documents import MAX_DEPTH, plain

MAX_CHARACTERS = 1 << 16
MAX_EXPANDED = 1 << 17
"""The maximum number of characters of all scalars, plus one for each node, with every alias expanded."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_RULE = re.compile(r"^-{3,}[ \t]*$\n?", re.MULTILINE)
_TOML = re.compile(r"\+{3}[ \t]*\n(.*?)^\+{3}[ \t]*$\n?", re.MULTILINE | re.DOTALL)
_LINE = re.compile(r"\s|$|#|- |-$|[{}\]]|%\}|[^\s:][^:]{0,60}:(\s|$)")
"""The start of a line of front matter, in YAML or a YAML template: a key, an item, a comment, a tag, a bracket, or
indentation. A paragraph of prose between two rules has lines that do not match."""
_ENTRY = re.compile(r"^(?=[^\s#\-}\]])", re.MULTILINE)
"""The beginning of a key and its value, or of a template's tag."""
_PLAIN_VALUE = re.compile(r"([^\s{][^:\n]*):[ \t]*([^\s\[{|>&*!#][^\n]*)\n*")
"""A key and a value on one line, which may be text that YAML requires quotes for, or lack the blank."""
_KEY = re.compile(r"[A-Za-z_][\w.-]{0,40}:(?!//)\s?")
_MOST_KEYS = 0.5


class FrontMatterError(ValueError):
    """The front matter is not YAML, exceeds a limit, or has values that JSON cannot represent."""


class FrontMatter(NamedTuple):
    """The metadata of a file's front matter, and the text after it. left_out: whether lines could not be read."""

    metadata: dict[str, Any]
    text: str
    left_out: bool


def read_front_matter(text: str) -> FrontMatter | None:
    """Read the front matter of a text; None if it has none. Of invalid YAML, the entries that can be read are kept."""
    if (block := _TOML.match(text)) is not None and len(block[1]) <= MAX_CHARACTERS:
        return _from_toml(block[1], text[block.end() :])
    split = split_front_matter(text)
    if split is None:
        return None
    try:
        metadata = metadata_of(split[0])
    except FrontMatterError:
        return FrontMatter(_readable(split[0]), split[1], left_out=True) if looks_like_yaml(split[0]) else None
    return None if metadata is None else FrontMatter(metadata, split[1], left_out=False)


def _from_toml(block: str, text: str) -> FrontMatter | None:
    try:
        metadata, left_out = plain(tomllib.loads(block), MAX_EXPANDED)
    except (tomllib.TOMLDecodeError, RecursionError, ValueError):
        return None
    return FrontMatter(metadata, text, left_out)


def _readable(front: str) -> dict[str, Any]:
    """Return the entries that can be read, each by itself. Of a line such as `title: A: b`, the value is text."""
    metadata: dict[str, Any] = {}
    if len(front) > MAX_CHARACTERS:
        return metadata
    room = MAX_EXPANDED
    for entry in _ENTRY.split(front):
        try:
            read, is_text = metadata_of(entry), True
        except FrontMatterError as error:
            read, is_text = None, isinstance(error.__cause__, yaml.YAMLError)
        if read is None:
            line = _PLAIN_VALUE.fullmatch(entry) if is_text and _KEY.match(entry) else None
            read = {} if line is None else {line[1].strip(): line[2].strip(" \t\"'")}
        room -= len(repr(read))
        if room < 0:
            break
        metadata |= read
    return metadata


def split_front_matter(text: str) -> tuple[str, str] | None:
    """Return the text between two rules at the beginning of a text, and the rest; None if there are no two rules."""
    first = _RULE.match(text)
    second = _RULE.search(text, first.end()) if first else None
    return None if first is None or second is None else (text[first.end() : second.start()], text[second.end() :])


def looks_like_yaml(front: str) -> bool:
    """Return whether invalid YAML may be meant as front matter.

    Either every line resembles a line of YAML, or it begins with a key, as do at least two lines and half of them.
    """
    lines = front.splitlines()
    keys = sum(_KEY.match(line) is not None for line in lines)
    begins = bool(lines) and _KEY.match(lines[0]) is not None
    return all(map(_LINE.match, lines)) or (begins and keys >= max(2, _MOST_KEYS * len(lines)))


def metadata_of(front: str) -> dict[str, Any] | None:
    """Return the metadata as plain JSON values; None if the YAML is not a mapping. Raises FrontMatterError."""
    _check_limits(front)
    try:
        loaded = yaml.load(front, Loader=_LOADER)  # noqa: S506 - a safe loader
        if loaded is None:
            return {}
        if not isinstance(loaded, Mapping):
            return None
        metadata, left_out = plain(loaded, MAX_EXPANDED)
        if left_out:
            raise ValueError("it has values that JSON cannot represent")
        return metadata
    except yaml.YAMLError as error:
        raise FrontMatterError(f"not YAML: {error}") from error
    # PyYAML raises these for values that do not fit their tags, such as a date of month 99 or `!!bool maybe`.
    except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError) as error:
        raise FrontMatterError(f"{type(error).__name__}: {error}") from error


def _check_limits(front: str) -> None:
    """Raise FrontMatterError for YAML that is too long, too deep or too large, before anything is built from it."""
    if len(front) > MAX_CHARACTERS:
        raise FrontMatterError(f"it has {len(front):,} characters; at most {MAX_CHARACTERS:,} are read")
    sizes = _Sizes()
    try:
        for event in yaml.parse(front, Loader=_LOADER):
            if isinstance(event, yaml.CollectionStartEvent):
                sizes.open(event.anchor)
            elif isinstance(event, yaml.CollectionEndEvent):
                sizes.close()
            elif isinstance(event, yaml.ScalarEvent):
                sizes.add(event.anchor, 1 + len(event.value), 0)
            elif isinstance(event, yaml.AliasEvent):
                sizes.repeat(event.anchor)
    except yaml.YAMLError as error:
        raise FrontMatterError(f"not YAML: {error}") from error


class _Sizes:
    """The sizes and heights of the nodes parsed so far, with every alias expanded. The height of a scalar is 0."""

    def __init__(self) -> None:
        self._open: list[tuple[str | None, int, int]] = [(None, 0, 0)]  # anchor, and size and height so far
        self._anchored: dict[str, tuple[int, int] | None] = {}  # None until the anchor's node has ended

    def open(self, anchor: str | None) -> None:
        if anchor is not None:
            self._anchored[anchor] = None
        self._open.append((anchor, 1, 1))
        self._refuse_depth(0)

    def close(self) -> None:
        self.add(*self._open.pop())

    def repeat(self, anchor: str | None) -> None:
        anchored = self._anchored.get(anchor or "", (1, 0))
        if anchored is None:
            raise FrontMatterError(f"*{anchor} refers to a node that contains it")
        self.add(None, *anchored)

    def add(self, anchor: str | None, size: int, height: int) -> None:
        if anchor is not None:
            self._anchored[anchor] = size, height
        within, so_far, highest = self._open[-1]
        so_far += size
        if so_far > MAX_EXPANDED:
            raise FrontMatterError(f"it has more than {MAX_EXPANDED:,} characters with its aliases expanded")
        self._refuse_depth(height)
        self._open[-1] = within, so_far, max(highest, 1 + height)

    def _refuse_depth(self, height: int) -> None:
        if len(self._open) - 1 + height > MAX_DEPTH:
            raise FrontMatterError(f"it is nested more than {MAX_DEPTH} levels deep")
