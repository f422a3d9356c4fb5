"""A corpus with communities that are plain to see: towns, each with people who write to each other."""

from __future__ import annotations

from collections.abc import Mapping

from tasks.stages.extract.extraction_tables import Unit
from tests.tasks.families.heterograph.graphs import Corpus, corpus_with, unit

TOWNS = ("vell", "orrin", "krait", "lassen", "tarrow")
PEOPLE = ("ada", "bruno", "cora", "dirk")


def towns(*names: str, more: Mapping[str, tuple[str, ...]] | None = None) -> Corpus:
    """A corpus of some towns, of four passages each; more: further passages, each a unit that names its town alone."""
    passages: dict[str, list[Unit]] = {}
    for name in names:
        for number, one in enumerate(PEOPLE):
            ends = f"{one} {name}", f"{PEOPLE[(number + 1) % len(PEOPLE)]} {name}"
            text = f"{ends[0].title()} wrote to {ends[1].title()} of {name.title()} on day {number}."
            passages[f"{name} {number}"] = [unit(text, *ends, name, says=((ends[0], "wrote to", ends[1]),))]
        passages |= {f"{name} {text}": [unit(text, name)] for text in (more or {}).get(name, ())}
    return corpus_with(passages)


def names_of(*names: str) -> list[str]:
    """The entities of a corpus of these towns."""
    return [one for name in names for one in (name, *(f"{person} {name}" for person in PEOPLE))]
