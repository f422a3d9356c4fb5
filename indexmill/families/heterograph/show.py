"""The statistics of a heterograph for ``indexmill show``: the paper's table 4, and storage.

Counts come from the graph's own arrays, bytes from the manifest: no table is read.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.families.heterograph.nodes import GRAPH, NAMES
from indexmill.families.heterograph.search import EDGES, KINDS
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.text.text_table import table

if TYPE_CHECKING:
    from indexmill.store.artifact_listing import Artifact
    from indexmill.store.manifest import Manifest

_COUNTS: CacheKey[dict[str, Any]] = CacheKey("heterograph's counts")

KIND_NAMES = {
    "T": "texts",
    "S": "units",
    "A": "attributes",
    "H": "high-level elements",
    "R": "relations",
    "N": "entities",
    "O": "overviews",
}

_TEXTS = {
    "T": "passages",
    "S": "units",
    "A": "attributes",
    "H": "elements",
    "R": "heterograph/relations",
    "N": "entities",
}
"""The tables with the texts of each kind; an overview is in the row of its element."""

_VECTORS = {"T": "vectors", "S": "unit_vectors", "A": "attribute_vectors", "H": "element_vectors"}

_OF_PASSAGES = ("passages", "passage_keys")
"""The arrays of ``vectors/<shard>`` for passages; the other arrays are for sentences."""

_REST = {
    "edges": ("heterograph/nodes", "heterograph/edges"),
    "graph": (GRAPH,),
    "names": (NAMES,),
}


def statistics(artifacts: Artifacts) -> dict[str, Any]:
    """Count the nodes and edges of each kind and the bytes that store them, as ``show --json`` prints them.

    ``nodes``: by kind ``{"nodes", "texts", "vectors"}``, the number of nodes, and the bytes of their tables and
    vectors; other families also use the texts, units and entities. ``edges``: the number by kind. ``storage``: the
    bytes of texts, vectors, the tables of nodes and edges, the graph, and the words of names, and their total.
    ``stand_ins``: the number of attributes and elements that a model should have written, but did not.

    Empty for a snapshot without the family. Raises CorruptBlob.
    """
    if "heterograph" not in artifacts.manifest.families:
        return {}
    return artifacts.once(_COUNTS, lambda: _statistics(artifacts.arrays(GRAPH), artifacts.manifest))


def _statistics(arrays: Mapping[str, npt.NDArray[Any]], manifest: Manifest) -> dict[str, Any]:
    edges = dict(zip(EDGES, arrays["edges"].tolist(), strict=True))
    attributes, elements = arrays["stand_ins"].tolist()
    every, near = sum(edges.values()), edges["near"]
    by_kind = {
        kind: {
            "nodes": count,
            "texts": _bytes(manifest, _TEXTS.get(kind)),
            "vectors": _bytes(manifest, _VECTORS.get(kind), _of_passages if kind == "T" else _whole),
        }
        for kind, count in zip(KINDS, np.diff(arrays["offsets"]).tolist(), strict=True)
    }
    storage = {
        **{what: sum(sizes[what] for sizes in by_kind.values()) for what in ("texts", "vectors")},
        **{what: sum(_bytes(manifest, name) for name in names) for what, names in _REST.items()},
    }
    count = sum(sizes["nodes"] for sizes in by_kind.values())
    return {
        "nodes": by_kind,
        "edges": edges,
        "all_nodes": count,
        "all_edges": every,
        "near_edges": near,
        "other_edges": every - near,
        "edges_per_node": round(every / count, 3) if count else None,
        "stand_ins": {"attributes": attributes, "elements": elements},
        "storage": {**storage, "all": sum(storage.values())},
    }


def listing(figures: dict[str, Any]) -> str:
    """Format the statistics of a heterograph as text."""
    from indexmill.text.counted import byte_size, counted

    count = max(figures["all_nodes"], 1)
    rows = [
        [
            f"{kind} {KIND_NAMES[kind]}",
            f"{sizes['nodes']:,}",
            f"{sizes['nodes'] / count:.1%}",
            byte_size(sizes["texts"]) if kind in _TEXTS else "-",
            byte_size(sizes["vectors"]) if kind in _VECTORS else "-",
        ]
        for kind, sizes in figures["nodes"].items()
    ]
    each = "-" if figures["edges_per_node"] is None else f"{figures['edges_per_node']:g}"
    stored = {what: byte_size(length) for what, length in figures["storage"].items()}
    size = f"{counted(figures['all_nodes'], 'node')} and {counted(figures['all_edges'], 'edge')}, {each} a node"
    lines = [
        table(["kind", "nodes", "share", "texts", "vectors"], rows),
        f"{size}: {figures['near_edges']:,} near, {figures['other_edges']:,} others",
        "edges    " + ", ".join(f"{number:,} {kind}" for kind, number in figures["edges"].items()),
        f"storage  {stored.pop('all')}: " + ", ".join(f"{length} {what}" for what, length in stored.items()),
    ]
    return "\n".join(lines)


def _bytes(manifest: Manifest, name: str | None, length: Callable[[Artifact], int] | None = None) -> int:
    if name is None:
        return 0
    whole = manifest.artifact(name)
    return sum(map(length or _whole, manifest.under(name) if whole is None else (whole,)))


def _whole(artifact: Artifact) -> int:
    return artifact.bytes


def _of_passages(artifact: Artifact) -> int:
    """Count the bytes of passage vectors and their keys in a pack that also contains those of sentences."""
    schema: dict[str, Any] = artifact.schema_ if isinstance(artifact.schema_, dict) else {}
    arrays = (schema[name] for name in _OF_PASSAGES if name in schema)
    return sum(np.dtype(array["dtype"]).itemsize * math.prod(array["shape"]) for array in arrays)


def other_counts(counts: Mapping[str, int], figures: Mapping[str, Any]) -> dict[str, int]:
    """Return the manifest's count of stand-ins; the statistics replace all its other counts."""
    return {what: number for what, number in counts.items() if what == "stand_ins"}
