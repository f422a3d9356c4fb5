"""The retrieval methods by name. Adding one is a module and a line here."""

from __future__ import annotations

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, cast

from indexmill.errors import BadInput, FamilyNotFound

if TYPE_CHECKING:
    from indexmill.manifest import Manifest
    from indexmill.retrieve.base import Retriever
    from indexmill.snapshot import Snapshot

__all__ = ["METHODS", "Method", "available", "make"]


@dataclass(frozen=True, slots=True)
class Method:
    """Where a method's retriever is (``module:class``, called with a snapshot), and the family that it reads."""

    retriever: str
    family: str | None = None


METHODS: dict[str, Method] = {
    "fused": Method("indexmill.retrieve.fused:Fused"),
    "tri_graph": Method("indexmill.retrieve.tri_graph_reader:TriGraphReader", family="tri_graph"),
    "zoom_graph": Method("indexmill.retrieve.zoom_graph_reader:ZoomGraphReader", family="zoom_graph"),
    "dense": Method("indexmill.retrieve.dense:Dense"),
    "bm25": Method("indexmill.retrieve.bm25:Bm25", family="bm25"),
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
    module, _, attribute = METHODS[name].retriever.partition(":")
    factory = cast("Callable[[Snapshot], Retriever]", getattr(importlib.import_module(module), attribute))
    return factory(snapshot)
