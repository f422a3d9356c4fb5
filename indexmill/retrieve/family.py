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

    weight: the default; 0 leaves the method out. place: where the method stands in the order of methods. floor: for a
    graph walk, the least that a score counts, as a part of the best score: smaller differences are noise; None for a
    method that does not walk. from_passages: the walk begins at the nearest passages. first_of_words: a good walk
    reaches the first passage of this method. reads_lists: the method itself combines the lists of words and vectors;
    beside_reader: the weight's factor where such a method takes part. half_led: names lead the method only in part.
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
    """An option of ``indexmill query`` that sets a parameter of retrieval: a choice, or a number from least to most."""

    parameter: str
    help: str
    metavar: str | None = None
    choices: tuple[str, ...] = ()
    least: int | None = None
    most: int | None = None
    whole: bool = True


TOKEN_BUDGET = Option("token_budget", "Hits of T tokens at most; what does not fit is left out.", metavar="T", least=1)
"""An option that several families share."""


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
    """What ``indexmill show`` draws when the family's own option is given.

    module: has ``outline(artifacts, depth, width)``, JSON-ready, and ``drawing(outline, unnumbered)``, the same text.
    help: of the option. show_help: what the help of ``show`` says beside it.
    """

    option: str
    module: str
    help: str
    show_help: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """What ``indexmill show`` reports about a family beside its manifest entry; ``key`` names it in ``--json``.

    module: has ``statistics(artifacts)``, JSON-ready and empty where there is nothing to report,
    ``listing(statistics)``, the same as text, and ``other_counts(counts, statistics)``, those of the manifest's counts
    that the statistics leave out. evaluated: ``indexmill evaluate`` reports them, too. show_help: what the help of
    ``show`` says.
    """

    key: str
    module: str
    evaluated: bool = False
    show_help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFamily:
    """A family, or a method that needs none (``always``): what it reads, and what depends on it.

    retriever: called with ``Artifacts``. parameters: a dataclass, the settings of retrieval. packs: the schemas of the
    family's own arrays, by artifact. artifacts: beside those that every snapshot has, what is read, by name or the
    name's first part. answering: the way of answering with a language model, called as
    ``indexmill.answer.base.Answering`` says. query_help: what the help of ``query`` says. tables: those whose rows a
    diff counts, with what identifies a row. provides: what others use where the snapshot holds the family, by a name
    that both know, called with ``Artifacts``. graphs: of GraphML, by the name of the file. forms: of tables for other
    tools, modules with ``check``, ``SCHEMAS`` and ``tables``.
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
    query_help: str = ""
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
