"""What a build runs: the families, and the steps in an order in which each follows those that it needs."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from graphlib import TopologicalSorter
from operator import methodcaller

from schemas.config import Configuration
from tasks.core.family import Family
from tasks.core.step import Step
from tasks.families.bm25.family import FAMILY as BM25
from tasks.families.pending import COMMUNITY_TREE, HETEROGRAPH, LSH_TREE
from tasks.families.tri_graph.family import FAMILY as TRI_GRAPH
from tasks.families.zoom_graph.family import FAMILY as ZOOM_GRAPH
from tasks.stages.check import check
from tasks.stages.embed import embed, names, titles
from tasks.stages.extract import steps as extract
from tasks.stages.recognise import steps as recognise
from tasks.stages.resolve import describe, resolve, same_as
from tasks.stages.split import split

__all__ = ["FAMILIES", "STEPS", "enabled_steps", "in_order", "needs_among"]

FAMILIES: tuple[Family, ...] = (
    BM25,
    TRI_GRAPH,
    ZOOM_GRAPH,
    LSH_TREE,
    COMMUNITY_TREE,
    HETEROGRAPH,
)

_SHARED = (
    Step("encoder", (), methodcaller("encoder")),
    Step("scan", (), methodcaller("scan")),
    Step("ingest", ("scan",), methodcaller("ingest"), of_shards=True),
    Step("split", ("ingest",), split.drive, of_shards=True),
    Step("recognise", ("split",), recognise.drive, of_shards=True),
    Step("extract", ("recognise",), extract.drive, lambda settings: settings.extracts, of_shards=True),
    Step("embed", ("encoder", "split"), embed.drive, of_shards=True),
    Step(
        "embed_titles",
        ("encoder", "split"),
        titles.drive,
        lambda settings: settings.split.title_in_passage,
        of_shards=True,
    ),
    Step("resolve", ("recognise", "extract"), resolve.drive),
    Step("describe", ("encoder", "resolve"), describe.drive, lambda settings: settings.describes),
    Step(
        "same_as",
        ("describe",),
        same_as.drive,
        lambda settings: settings.describes and settings.resolve.same_as.enabled,
    ),
    Step("embed_names", ("encoder", "resolve"), names.drive),
)
"""What families share."""


def _ends(steps: Iterable[Step]) -> tuple[str, ...]:
    """The steps that no other waits for."""
    waited = {need for step in steps for need in step.needs}
    return tuple(step.name for step in steps if step.name not in waited)


def in_order(steps: Iterable[Step]) -> Iterator[Step]:
    """The steps, each after those that it needs, and else in the order that they have.

    Raises LookupError where a step needs one that is not there, and graphlib.CycleError where some need each other.
    """
    by_name = {step.name: step for step in steps}
    for step in by_name.values():
        for need in step.needs:
            if need not in by_name:
                near = get_close_matches(need, by_name, n=1)
                hint = f" (did you mean {near[0]!r}?)" if near else ""
                raise LookupError(f"the step {step.name} needs {need!r}, which is no step{hint}")
    sorter = TopologicalSorter({name: step.needs for name, step in by_name.items()})
    sorter.prepare()
    places, ready = {name: place for place, name in enumerate(by_name)}, set[str]()
    while sorter.is_active():
        ready.update(sorter.get_ready())
        first = min(ready, key=places.__getitem__)
        ready.remove(first)
        sorter.done(first)
        yield by_name[first]


def _all() -> Iterator[Step]:
    yield from _SHARED
    for family in FAMILIES:
        yield from family.guarded_steps()
    made = (step for family in FAMILIES for step in _ends(family.steps))
    yield Step("check", ("extract", "embed", "embed_titles", "embed_names", "describe", "same_as", *made), check.drive)
    yield Step("quality", ("check",), methodcaller("quality"), lambda settings: settings.gates.questions is not None)


STEPS: tuple[Step, ...] = tuple(in_order(_all()))


def enabled_steps(configuration: Configuration) -> tuple[Step, ...]:
    """The steps that the settings ask for, in an order in which each follows those that it needs."""
    return tuple(step for step in STEPS if step.enabled(configuration))


def needs_among(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """What each of some steps waits for, among them, by name."""
    chosen = {step.name: step for step in steps}
    return {name: tuple(need for need in step.needs if need in chosen) for name, step in chosen.items()}
