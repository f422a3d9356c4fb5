"""The steps of a run, in an order in which each follows those that it needs."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from operator import methodcaller

from schemas.config import Configuration
from tasks.core.step import Step
from tasks.families.community_tree import family as community_tree
from tasks.families.heterograph import family as heterograph
from tasks.families.lsh_tree import family as lsh_tree

__all__ = ["STEPS", "enabled_steps", "needs_among"]


def _step(
    name: str, needs: tuple[str, ...] = (), enabled: Callable[[Configuration], bool] | None = None, shards: bool = False
) -> Step:
    return Step(name, methodcaller(name), enabled=enabled or (lambda _: True), of_shards=shards, needs=needs)


STEPS: tuple[Step, ...] = (
    _step("encoder"),
    _step("scan"),
    _step("ingest", ("scan",), shards=True),
    _step("split", ("ingest",), shards=True),
    _step("recognise", ("split",), shards=True),
    _step("extract", ("recognise",), lambda settings: settings.extracts, shards=True),
    _step("embed", ("encoder", "split"), shards=True),
    _step("embed_titles", ("encoder", "split"), lambda settings: settings.split.title_in_passage, shards=True),
    _step("resolve", ("recognise", "extract")),
    _step("describe", ("encoder", "resolve"), lambda settings: settings.describes),
    _step("same_as", ("describe",), lambda settings: settings.describes and settings.resolve.same_as.enabled),
    _step("embed_names", ("encoder", "resolve")),
    _step("bm25", ("split",), lambda settings: settings.families.bm25.enabled, shards=True),
    _step("tri_graph", ("resolve",), lambda settings: settings.families.tri_graph.enabled),
    # Nothing waits for zoom_links alone, and much does for the first layer of lsh_tree: so it waits for resolve, too.
    _step("zoom_links", ("embed", "resolve"), lambda settings: settings.families.zoom_graph.enabled),
    _step(
        "zoom_entity_links",
        ("embed_names",),
        lambda settings: settings.families.zoom_graph.enabled and settings.families.zoom_graph.entity_links,
    ),
    _step(
        "zoom_graph",
        ("embed_names", "zoom_links", "zoom_entity_links"),
        lambda settings: settings.families.zoom_graph.enabled,
    ),
    *lsh_tree.FAMILY.guarded_steps(),
    *community_tree.FAMILY.guarded_steps(),
    *heterograph.FAMILY.guarded_steps(),
    _step(
        "check",
        (
            *("extract", "embed", "embed_titles", "embed_names", "bm25", "tri_graph", "zoom_graph"),
            *("lsh_vectors", "same_as", "community_tree", "heterograph"),
        ),
    ),
    _step("quality", ("check",), lambda settings: settings.gates.questions is not None),
)


def enabled_steps(configuration: Configuration) -> tuple[Step, ...]:
    """The steps that the settings ask for, in an order in which each follows those that it needs."""
    return tuple(step for step in STEPS if step.enabled(configuration))


def needs_among(steps: Iterable[Step]) -> dict[str, tuple[str, ...]]:
    """What each of some steps waits for, among them, by name."""
    chosen = {step.name: step for step in steps}
    return {name: tuple(need for need in step.needs if need in chosen) for name, step in chosen.items()}
