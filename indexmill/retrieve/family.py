"""What a family of indexes is to the reader: a declaration in the family's folder, and a line in the registry.

A declaration is light to import: it names code as ``module:attribute``, which is loaded when it is first needed.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

__all__ = ["TOKEN_BUDGET", "AnsweringOption", "Fusion", "Option", "ReaderFamily", "Statistics", "View", "load"]


@dataclass(frozen=True, slots=True)
class Fusion:
    """How a method counts among several that rank passages together: see ``indexmill.retrieve.fused``.

    weight: by default; 0 leaves the method out. place: of the method among the others. floor: of a graph walk, what a
    score counts at least, as a part of the best one: below, differences are noise; None for what is no walk.
    from_passages: whether a walk begins at the nearest passages. first_of_words: whether a walk is expected to come by
    the method's first passage. reads_lists: whether the method reads the lists of words and vectors; beside_reader:
    what the method counts beside such a one. half_led: whether names lead the method in part.
    """

    weight: float
    place: int
    floor: float | None = None
    from_passages: bool = False
    first_of_words: bool = False
    reads_lists: bool = False
    beside_reader: float = 1.0
    half_led: bool = False


@dataclass(frozen=True, slots=True)
class Option:
    """An option of ``indexmill query`` for a parameter of retrieval: a choice, or a number from least to most."""

    parameter: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    whole: bool = True


TOKEN_BUDGET = Option("token_budget", "Hits of T tokens at most; what does not fit is left out.", metavar="T", least=1)
"""Of several families."""


@dataclass(frozen=True, slots=True)
class AnsweringOption:
    """An option of commands that ask a language model, for a setting of the method's way of answering.

    metavar: of a whole number of at least 1; None for a flag, which stands for ``value``.
    """

    name: str
    setting: str
    help: str
    metavar: str | None = None
    value: object = None

    @property
    def parameter(self) -> str:
        """The option's name in code."""
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class View:
    """What ``indexmill show`` draws with an option of the family's own.

    module: has ``outline(artifacts, depth, width)``, JSON-ready, and ``drawing(outline, unnumbered)``, the same text.
    help: of the option. said: what the command's help says.
    """

    option: str
    module: str
    help: str
    said: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """What ``indexmill show`` tells of a family beside the manifest, under ``key`` of ``--json``.

    module: has ``statistics(artifacts)``, JSON-ready and empty where there is nothing to tell, ``listing(statistics)``,
    the same as text, and ``other_counts(counts, statistics)``, those of the manifest's counts that are not in there.
    evaluated: whether ``indexmill evaluate`` tells it, too. said: what the help of ``show`` says.
    """

    key: str
    module: str
    evaluated: bool = False
    said: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFamily:
    """A family, or a method that needs none (``always``): what it reads, and what depends on it.

    retriever: called with ``Artifacts``. parameters: a dataclass, the settings of retrieval. artifacts: beside those
    that every snapshot has, what is read, by name or the name's first part. packs: the schemas of the family's own
    arrays, by artifact. answering: the way of answering with a language model, called as
    ``indexmill.answer.base.Answering`` says. said: what the help of ``query`` says. tables: those whose rows a diff
    counts, with what identifies a row. provides: what others use where the snapshot holds the family, by a name that
    both know, called with ``Artifacts``. graphs: of GraphML, by the name of the file. forms: of tables for other tools,
    modules with ``check``, ``SCHEMAS`` and ``tables``.
    """

    name: str
    retriever: str
    parameters: str
    packs: str = ""
    artifacts: tuple[str, ...] = ()
    always: bool = False
    fusion: Fusion | None = None
    answering: str = "indexmill.answer.one_prompt:OnePrompt"
    options: tuple[Option, ...] = ()
    answering_options: tuple[AnsweringOption, ...] = ()
    said: str = ""
    view: View | None = None
    statistics: Statistics | None = None
    tables: Mapping[str, str] = field(default_factory=dict)
    provides: Mapping[str, str] = field(default_factory=dict)
    graphs: Mapping[str, str] = field(default_factory=dict)
    forms: Mapping[str, str] = field(default_factory=dict)


def load(place: str) -> Any:
    """What ``module:attribute`` names; a module where no attribute is named."""
    module, _, attribute = place.partition(":")
    found: Any = importlib.import_module(module)
    return getattr(found, attribute) if attribute else found
