"""The lists of a Word document, and the numbers that Word shows before their items."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, field

from tasks.stages.ingest.formats.markdown_marks import one_line
from tasks.stages.ingest.formats.markdown_text import Inline
from tasks.stages.ingest.formats.numbering import counted
from tasks.stages.ingest.formats.opc import Package
from tasks.stages.ingest.formats.word_styles import is_on, value_of
from tasks.stages.ingest.formats.xml import Element, blocks, each, first, integer

_MAX_LABEL = 60


@dataclass(slots=True)
class _Level:
    start: int = 1
    form: str = "decimal"
    text: str = ""
    style: str = ""
    legal: bool = False


@dataclass(slots=True)
class Numbering:
    """The lists of a document, and how far each has counted."""

    levels: dict[str, dict[int, _Level]] = field(default_factory=dict)  # of abstract lists
    abstract: dict[str, str] = field(default_factory=dict)  # of a list
    restarts: dict[str, dict[int, int]] = field(default_factory=dict)
    own_levels: dict[str, dict[int, _Level]] = field(default_factory=dict)
    by_style: dict[str, str] = field(default_factory=dict)  # an abstract list that is kept in a style's
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)
    _begun: set[tuple[str, int]] = field(default_factory=set)

    def level_of(self, number: str, level: int) -> _Level | None:
        """How a level of a list is numbered; None for an unknown list."""
        own = self.own_levels.get(number, {}).get(level)
        return own or self.levels.get(self.abstract.get(number, ""), {}).get(level)

    def level_by_style(self, number: str, style: str) -> int | None:
        """The level of a list that is kept for a style."""
        for level, one in self.levels.get(self.abstract.get(number, ""), {}).items():
            if one.style == style:
                return level
        return None

    def label(self, number: str, level: int) -> str:
        """Count one item, and return what Word shows before it; empty for none, `•` for a bullet."""
        shape = self.level_of(number, level)
        if shape is None:
            return ""
        if shape.form == "bullet":
            return "•"
        counts = self._counts.setdefault(self.abstract[number], {})
        restart = self.restarts.get(number, {}).get(level)
        if restart is not None and (number, level) not in self._begun:
            counts[level] = restart
        else:
            counts[level] = counts[level] + 1 if level in counts else shape.start
        self._begun.add((number, level))
        for deeper in [one for one in counts if one > level]:
            del counts[deeper]

        def shown(found: re.Match[str]) -> str:
            at = int(found[1]) - 1
            inner = self.level_of(number, at)
            start = inner.start if inner is not None else 1
            form = inner.form if inner is not None and not shape.legal else "decimal"
            return counted(counts.setdefault(at, start) if at <= level else start, form)

        if shape.form == "none" and "%" not in shape.text:
            return Inline(one_line(shape.text)[:_MAX_LABEL]).markdown()
        return Inline(one_line(re.sub(r"%([1-9])", shown, shape.text))[:_MAX_LABEL]).markdown()


def numbering_of(package: Package) -> Numbering:
    """The lists of a document."""
    found = Numbering()
    part = package.related(package.main, "numbering")
    if part is None:
        return found
    linked: dict[str, str] = {}  # an abstract list -> the style that has its levels
    kept_in: dict[str, str] = {}  # a style -> its abstract list
    for one in blocks(package.read(part), part, "", 2):
        if one.tag == "w:abstractNum":
            name = one.get("w:abstractNumId", "")
            found.levels[name] = dict(_levels(one))
            if link := value_of(one, "w:numStyleLink"):
                linked[name] = link
            if link := value_of(one, "w:styleLink"):
                kept_in.setdefault(link, name)
        elif one.tag == "w:num":
            number = one.get("w:numId", "")
            found.abstract[number] = value_of(one, "w:abstractNumId")
            for override in each(one, "w:lvlOverride"):
                level = integer(override.get("w:ilvl"))
                restart = first(override, "w:startOverride")
                if restart is not None:
                    found.restarts.setdefault(number, {})[level] = integer(restart.get("w:val"), 1)
                found.own_levels.setdefault(number, {}).update(_levels(override))
    for name, style in linked.items():
        if not found.levels.get(name):  # one step alone: a list that is kept in a list that is kept elsewhere is none
            found.levels[name] = found.levels.get(kept_in.get(style, ""), {})
    return found


def _levels(element: Element) -> Iterator[tuple[int, _Level]]:
    for one in each(element, "w:lvl"):
        level = integer(one.get("w:ilvl"))
        if 0 <= level <= 8:
            form = value_of(one, "w:numFmt") or "decimal"
            text, style = value_of(one, "w:lvlText"), value_of(one, "w:pStyle")
            yield level, _Level(integer(value_of(one, "w:start"), 1), form, text, style, is_on(one, "w:isLgl") is True)
