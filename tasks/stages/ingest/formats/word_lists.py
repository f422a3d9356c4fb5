"""The lists of a Word document, and the numbers that Word shows for their items."""

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
    """The lists of a document, and their current item numbers."""

    levels: dict[str, dict[int, _Level]] = field(default_factory=dict)  # the levels of each abstract list
    abstract: dict[str, str] = field(default_factory=dict)  # the abstract list of each list
    restarts: dict[str, dict[int, int]] = field(default_factory=dict)
    level_overrides: dict[str, dict[int, _Level]] = field(default_factory=dict)
    _counts: dict[str, dict[int, int]] = field(default_factory=dict)
    _begun: set[tuple[str, int]] = field(default_factory=set)

    def level_of(self, number: str, level: int) -> _Level | None:
        """Return how a level of a list is numbered; None for an unknown list or level."""
        override = self.level_overrides.get(number, {}).get(level)
        return override or self.levels.get(self.abstract.get(number, ""), {}).get(level)

    def level_by_style(self, number: str, style: str) -> int | None:
        """Return the level that a style is linked to in a list; None if there is none."""
        levels = self.levels.get(self.abstract.get(number, ""), {})
        return next((level for level, shape in levels.items() if shape.style == style), None)

    def label(self, number: str, level: int) -> str:
        """Count an item, and return its label as Word shows it: `•` for a bullet, empty for no label."""
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
        for deeper in [counted_level for counted_level in counts if counted_level > level]:
            del counts[deeper]

        def shown(match: re.Match[str]) -> str:
            at = int(match[1]) - 1
            inner = self.level_of(number, at)
            start = inner.start if inner is not None else 1
            form = inner.form if inner is not None and not shape.legal else "decimal"
            return counted(counts.setdefault(at, start) if at <= level else start, form)

        if shape.form == "none" and "%" not in shape.text:
            return Inline(one_line(shape.text)[:_MAX_LABEL]).markdown()
        return Inline(one_line(re.sub(r"%([1-9])", shown, shape.text))[:_MAX_LABEL]).markdown()


def numbering_of(package: Package) -> Numbering:
    """Read the lists of a document."""
    numbering = Numbering()
    part = package.related(package.main, "numbering")
    if part is None:
        return numbering
    linked: dict[str, str] = {}  # the style that defines an abstract list's levels, by the list's name
    abstract_by_style: dict[str, str] = {}  # the abstract list of each style
    for element in blocks(package.read(part), part, "", 2):
        if element.tag == "w:abstractNum":
            name = element.get("w:abstractNumId", "")
            numbering.levels[name] = dict(_levels(element))
            if link := value_of(element, "w:numStyleLink"):
                linked[name] = link
            if link := value_of(element, "w:styleLink"):
                abstract_by_style.setdefault(link, name)
        elif element.tag == "w:num":
            number = element.get("w:numId", "")
            numbering.abstract[number] = value_of(element, "w:abstractNumId")
            for override in each(element, "w:lvlOverride"):
                level = integer(override.get("w:ilvl"))
                restart = first(override, "w:startOverride")
                if restart is not None:
                    numbering.restarts.setdefault(number, {})[level] = integer(restart.get("w:val"), 1)
                numbering.level_overrides.setdefault(number, {}).update(_levels(override))
    for name, style in linked.items():
        if not numbering.levels.get(name):  # only one link is followed
            numbering.levels[name] = numbering.levels.get(abstract_by_style.get(style, ""), {})
    return numbering


def _levels(element: Element) -> Iterator[tuple[int, _Level]]:
    for child in each(element, "w:lvl"):
        level = integer(child.get("w:ilvl"))
        if 0 <= level <= 8:
            form = value_of(child, "w:numFmt") or "decimal"
            text, style = value_of(child, "w:lvlText"), value_of(child, "w:pStyle")
            yield (
                level,
                _Level(integer(value_of(child, "w:start"), 1), form, text, style, is_on(child, "w:isLgl") is True),
            )
