"""The declaration of an index family for readers: an object in the family's folder, and a line in the registry.

A declaration is cheap to import: it names code as ``module:attribute``, which is loaded on first use.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Fusion:
    """The role of a method in fusion: see ``indexmill.retrieve.fused``.

    weight: the default weight; 0 leaves the method out. place: the method's position in the order of methods. floor:
    for a graph walk, the smallest score that counts, as a fraction of the best: smaller differences are noise; None for
    a method that does not walk. from_passages: the walk begins at the nearest passages. first_of_words: a good walk
    reaches the first passage of this method. reads_lists: the method itself combines the lexical and dense lists.
    beside_reader: the factor of this method's weight if a method that reads lists takes part. half_led: the method
    follows both names and vectors.
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


TOKEN_BUDGET = Option(
    "token_budget", "Limit the hits to T tokens in total; hits that do not fit are skipped.", metavar="T", least=1
)
"""An option that several families share."""


@dataclass(frozen=True, slots=True)
class AnsweringOption:
    """An option of commands that call a language model; it changes a setting of the method's answering.

    metavar: the placeholder for a whole number of at least 1; None for a flag, which sets ``value``. shapes_texts: True
    if it changes the texts that are read of hits, and not only the prompts.
    """

    name: str
    setting: str
    help: str
    metavar: str | None = None
    value: object = None
    shapes_texts: bool = False

    @property
    def parameter(self) -> str:
        """The option's name as a Python identifier."""
        return self.name.removeprefix("--").replace("-", "_")


@dataclass(frozen=True, slots=True)
class View:
    """A drawing of ``indexmill show``, selected by an option of the family.

    module: a module with ``outline(artifacts, depth, width)``, JSON-ready, and ``drawing(outline, unnumbered)``, the
    outline as text. help: the option's help. show_help: an additional sentence in the help of ``show``.
    """

    option: str
    module: str
    help: str
    show_help: str


@dataclass(frozen=True, slots=True)
class Statistics:
    """Statistics that ``indexmill show`` reports about a family; ``key`` names them in ``--json``.

    module: a module with ``statistics(artifacts)``, JSON-ready and empty if there is nothing to report,
    ``listing(statistics)``, the same as text, and ``other_counts(counts, statistics)``, the manifest's counts that the
    statistics leave out. evaluated: True if ``indexmill evaluate`` reports them, too. show_help: the text in the help
    of ``show``.
    """

    key: str
    module: str
    evaluated: bool = False
    show_help: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ReaderFamily:
    """The declaration of a family, or of a method that needs no family (``always``).

    retriever: the retriever's class, called with ``Artifacts``. parameters: the dataclass of the retrieval settings.
    packs: the schemas of the family's own arrays, by artifact. artifacts: the artifacts that it reads in addition to
    those of every snapshot, by name or the name's first part. answering: the class that answers with a language model,
    see ``indexmill.answer.answer_types.Answering``. query_help: the text in the help of ``query``. tables: the tables
    whose rows a diff counts, with the key of a row. provides: functions for other code, by an agreed name, called with
    ``Artifacts``. graphs: sources of GraphML, by file name. forms: modules with ``check`` and ``tables`` that export
    tables for other tools. vectors: functions that return tables of texts with vectors, by table, as in
    ``tasks.export.vector_tables``. written: the tables that a model writes, by the model's name in the manifest.
    distributions: a module with ``sizes(artifacts)``, which returns a ``FamilySizes`` for reports: see
    ``indexmill.retrieve.distributions``.
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
    vectors: Mapping[str, str] = field(default_factory=dict)
    written: Mapping[str, str] = field(default_factory=dict)
    distributions: str = ""


def load(reference: str) -> Any:
    """Import the object that ``module:attribute`` names; the module if no attribute is named."""
    module, _, attribute = reference.partition(":")
    loaded: Any = importlib.import_module(module)
    return getattr(loaded, attribute) if attribute else loaded
