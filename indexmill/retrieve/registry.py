"""The retrieval methods by name, and how each answers. Adding one is a module and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, cast

from indexmill.errors import BadInput, FamilyNotFound

if TYPE_CHECKING:
    from indexmill.answer.base import Answering
    from indexmill.retrieve.base import Retriever
    from indexmill.snapshot import Snapshot
    from indexmill.store.manifest import Manifest

__all__ = ["METHODS", "Method", "answering", "available", "make"]


@dataclass(frozen=True, slots=True)
class Method:
    """Where a method's retriever is (``module:class``, called with a snapshot), and the family that it reads.

    answering: its way of answering with a language model (``module:class``, called as ``Answering`` says).
    """

    retriever: str
    family: str | None = None
    answering: str = "indexmill.answer.one_prompt:OnePrompt"


METHODS: dict[str, Method] = {
    "fused": Method("indexmill.retrieve.fused:Fused"),
    "tri_graph": Method("indexmill.families.tri_graph.retriever:TriGraphReader", family="tri_graph"),
    "zoom_graph": Method(
        "indexmill.families.zoom_graph.retriever:ZoomGraphReader",
        family="zoom_graph",
        answering="indexmill.families.zoom_graph.answering:KeptSentences",
    ),
    "lsh_tree": Method("indexmill.families.lsh_tree.retriever:LshTreeReader", family="lsh_tree"),
    "community_tree": Method(
        "indexmill.families.community_tree.retriever:CommunityTreeReader",
        family="community_tree",
        answering="indexmill.families.community_tree.answering:AdaptiveFiltering",
    ),
    "heterograph": Method("indexmill.families.heterograph.retriever:HeterographReader", family="heterograph"),
    "dense": Method("indexmill.retrieve.dense:Dense"),
    "bm25": Method("indexmill.families.bm25.retriever:Bm25", family="bm25"),
}
"""All methods, the best first: a retrieval that names none takes the first that the snapshot holds."""


def available(manifest: Manifest) -> tuple[str, ...]:
    """The methods whose family a snapshot holds, the best first."""
    return tuple(name for name, method in METHODS.items() if method.family in (None, *manifest.families))


def make(name: str, snapshot: Snapshot) -> Retriever:
    """The retriever of a method; raises BadInput for an unknown name, FamilyNotFound for a family that is not there."""
    held = available(snapshot.manifest)
    if name not in METHODS:
        raise BadInput(f"there is no method {name!r}; this snapshot has {', '.join(held)}")
    if name not in held:
        raise FamilyNotFound(f"{snapshot.path}: the snapshot does not hold {name!r}; it has {', '.join(held)}")
    return cast("Callable[[Snapshot], Retriever]", _named(METHODS[name].retriever))(snapshot)


def answering(name: str, settings: Mapping[str, object] | None = None, prompts: Path | None = None) -> Answering:
    """The way in which a method answers, made as ``Answering`` says; raises BadInput for an unknown name."""
    if name not in METHODS:
        raise BadInput(f"there is no method {name!r}; there are {', '.join(METHODS)}")
    made = cast("Callable[[Mapping[str, object] | None, Path | None], Answering]", _named(METHODS[name].answering))
    return made(settings, prompts)


def _named(place: str) -> object:
    module, _, attribute = place.partition(":")
    return getattr(importlib.import_module(module), attribute)
