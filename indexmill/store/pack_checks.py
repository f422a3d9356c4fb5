"""What the arrays of a snapshot have to be before anything computes with them.

The bytes of a pack may be those that its manifest names, and its values such that code that trusts them would ask for
any amount of memory, never end, or read other rows than it means to. So types, shapes, rows and pointers are checked
when a pack is opened, against each other and against the rows that the manifest states. What each array is:
``docs/format.md``.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.store.manifest import Manifest

__all__ = ["Sizes", "check_arrays"]

Arrays = Mapping[str, npt.NDArray[Any]]

_PIECE = 1 << 20
"""Values that are looked at at once."""

_KINDS = {"integer": "iu", "unsigned": "u", "float": "f", "number": "iuf"}


class _Rule(NamedTuple):
    """What one array has to be.

    kind: of its values. shape: lengths or names of lengths, with ``+1`` for one more; equal names are equal lengths,
    those of ``Sizes`` among them. into: it holds, rising from 0, places in something of this length, the last its
    end. below: its values are less than this, and at least ``least``. rising: whether no value is less than the one
    before.
    """

    kind: str
    shape: tuple[str | int, ...]
    into: str = ""
    below: str | int = ""
    least: int | None = None
    rising: bool = False


def _vectors(rows: str) -> _Rule:
    return _Rule("number", (rows, "dimensions"))


def _hashes(rows: str, width: int = 16) -> _Rule:
    return _Rule("unsigned", (rows, width))


def _pointers(rows: str, into: str) -> _Rule:
    return _Rule("integer", (f"{rows}+1",), into=into)


def _rows(length: str, below: str, least: int = 0) -> _Rule:
    return _Rule("integer", (length,), below=below, least=least)


def _counts(length: str) -> _Rule:
    return _Rule("integer", (length,), least=0)


def _keys(length: str) -> _Rule:
    return _Rule("unsigned", (length,), rising=True)


def _matrix(name: str, rows: str, columns: str) -> dict[str, _Rule]:
    """A sparse matrix by rows, with whatever stands beside its links."""
    links = f"{name} links"
    return {
        f"{name}.indptr": _pointers(rows, links),
        f"{name}.indices": _rows(links, columns),
        f"{name}.counts": _counts(links),
        f"{name}.weights": _Rule("float", (links,)),
        f"{name}.titles": _Rule("number", (links,)),
    }


def _terms(prefix: str) -> dict[str, _Rule]:
    terms, postings = f"{prefix}terms", f"{prefix}postings"
    return {
        f"{prefix}keys": _keys(terms),
        f"{prefix}indptr": _pointers(terms, postings),
        f"{prefix}passages": _rows(postings, "own passages"),
        f"{prefix}counts": _counts(postings),
        f"{prefix}lengths": _counts("own passages"),
    }


_RULES: Mapping[str, Mapping[str, _Rule]] = {
    "vectors": {
        "passages": _vectors("own passages"),
        "sentences": _vectors("own sentences"),
        "passage_keys": _hashes("own passages"),
        "sentence_keys": _hashes("own sentences"),
    },
    "titles": {
        "vectors": _vectors("own documents"),
        "text_keys": _hashes("own documents"),
        "passage_document": _rows("own passages", "own documents"),
    },
    "names": {"vectors": _vectors("names"), "entity_keys": _keys("names"), "keys": _hashes("names")},
    "bm25": _terms("") | _terms("titles."),
    "tri_graph/matrices": _matrix("mentions", "sentences", "entities")
    | _matrix("mentioned_in", "entities", "sentences")
    | _matrix("contents", "passages", "entities")
    | _matrix("contained_in", "entities", "passages")
    | {
        "sentence_passage": _Rule("integer", ("sentences",), below="passages", least=0, rising=True),
        "entity_keys": _keys("entities"),
        "strengths": _counts("entities"),
        "documents": _counts("entities"),
    },
    "zoom_graph/matrices": _matrix("mentions", "sentences", "entities")
    | _matrix("mentioned_in", "entities", "sentences")
    | _matrix("contents", "linked documents", "entities")
    | _matrix("documents", "linked documents", "linked documents")
    | _matrix("entities", "entities", "entities")
    | {
        "sentence_passage": _Rule("integer", ("sentences",), below="passages", least=0, rising=True),
        "passage_document": _rows("passages", "linked documents"),
        "entity_keys": _keys("entities"),
    },
    "zoom_graph/vectors": {"vectors": _vectors("linked documents"), "keys": _hashes("linked documents")},
    "summary_vectors": {
        "vectors": _vectors("own summaries"),
        "keys": _hashes("own summaries", 32),
        "text_keys": _hashes("own summaries"),
    },
    "lsh_tree/tree": {
        "layer_offsets": _pointers("layers", "nodes"),
        "children.indptr": _pointers("summaries", "children"),
        "children.indices": _rows("children", "nodes"),
        "parents": _rows("nodes", "nodes", least=-1),
        "codes": _Rule("unsigned", ("nodes",)),
        "stand_ins": _counts("summaries"),
    },
    "community_tree/tree": {
        "level_offsets": _pointers("layers", "nodes"),
        "children.indptr": _pointers("communities", "children"),
        "children.indices": _rows("children", "nodes"),
        "parents": _rows("nodes", "nodes", least=-1),
        "passages.indptr": _pointers("described", "extracted"),
        "passages.indices": _rows("extracted", "passages"),
        "passages.about": _counts("extracted"),
        "relations.indptr": _pointers("described", "ends"),
        "relations.indices": _rows("ends", "described"),
        "relations.rows": _rows("ends", "related"),
        "entity_keys": _keys("described"),
        "stand_ins": _counts("communities"),
    },
    "community_tree/index": {
        "vectors": _vectors("nodes"),
        "level_offsets": _pointers("layers", "nodes"),
        "indptr": _pointers("nodes", "links"),
        "indices": _rows("links", "nodes"),
        "down": _rows("nodes", "nodes", least=-1),
        "entries": _Rule("integer", ("layers",), below="nodes", least=-1),
        "rows": _rows("nodes", "nodes"),
    },
    "unit_vectors": {
        "vectors": _vectors("own units"),
        "text_keys": _hashes("own units"),
        "tokens": _counts("own units"),
    },
    "attribute_vectors": {"vectors": _vectors("own attributes"), "text_keys": _hashes("own attributes")},
    "element_vectors": {"vectors": _vectors("own elements"), "text_keys": _hashes("own elements")},
    "heterograph/graph": {
        "offsets": _pointers("kinds", "nodes"),
        "links.indptr": _pointers("nodes", "links"),
        "links.indices": _rows("links", "nodes"),
        "links.kinds": _Rule("integer", ("links",), below=10, least=0),
        "passages.indptr": _pointers("supported", "support"),
        "passages.indices": _rows("support", "passages"),
        "rows": _counts("nodes"),
        "entity_keys": _keys("entities"),
        "edges": _counts("kinds of edges"),
        "relation_tokens": _counts("heterograph/relations"),
        "stand_ins": _Rule("integer", (2,), least=0),
    },
    "heterograph/names": {
        "keys": _keys("words"),
        "holders.indptr": _pointers("words", "holders"),
        "holders.indices": _rows("holders", "names"),
        "starts": _pointers("names", "words of names"),
        "words": _rows("words of names", "words"),
    },
}
"""By artifact, or by the folder of its shards."""

_OF_TREE = ("children.indptr", "children.indices", "parents")
_OF_INDEX = ("level_offsets", "indptr", "indices", "down", "entries")
_TREES = {"lsh_tree/tree": "layer_offsets", "community_tree/tree": "level_offsets"}

_TABLES = (
    *("passages", "sentences", "documents", "summaries", "units", "attributes", "elements", "described", "related"),
    "communities",
)
"""Tables in shards that arrays stand beside row by row, or point into."""


_LENGTHS = frozenset(
    length.removesuffix("+1")
    for rules in _RULES.values()
    for rule in rules.values()
    for length in (*rule.shape, rule.into, rule.below)
    if isinstance(length, str)
)
"""The names of lengths in the rules."""


class Sizes:
    """The lengths that arrays of a snapshot have to have, or to stay below, as its manifest says."""

    def __init__(self, manifest: Manifest) -> None:
        self._all: dict[str, int] = {}
        self._own: dict[str, dict[str, int]] = {}  # by label
        for one in manifest.artifacts:
            table, _, label = one.name.partition("/")
            if one.kind == "table" and one.rows is not None:
                table = table if table in _TABLES else one.name
                if table in _LENGTHS:
                    self._all[table] = self._all.get(table, 0) + one.rows
                if f"own {table}" in _LENGTHS:
                    self._own.setdefault(label, {})[f"own {table}"] = one.rows
            elif table == "vectors" and "dimensions" not in self._all:
                declared: Any = one.schema_
                with contextlib.suppress(KeyError, IndexError, TypeError):  # a schema of another form
                    self._all["dimensions"] = int(declared["passages"]["shape"][1])

    def of(self, name: str) -> dict[str, int]:
        """The lengths that concern an artifact.

        ``passages`` are the rows of that table in all shards, ``own passages`` those in the shard of the artifact's
        label, ``dimensions`` the length of a passage's vector.
        """
        return self._all | self._own.get(name.partition("/")[2], {})


def check_arrays(name: str, arrays: Arrays, sizes: Mapping[str, int]) -> str:
    """What is wrong with the arrays of an artifact, such as "'parents' has values below -1"; empty where nothing is.

    sizes: lengths by name, as ``Sizes.of`` gives them. Arrays that are missing are the business of whoever reads
    them, and so are those that are not known here.
    """
    rules = _RULES.get(name) or _RULES.get(name.partition("/")[0], {})
    known = {one: rule for one, rule in rules.items() if one in arrays}
    problems = [_problems(arrays, known, dict(sizes))]
    if name in _TREES:
        problems.append(_tree_problems(*(arrays[one] for one in (_TREES[name], *_OF_TREE) if one in arrays)))
    if name == "community_tree/index":
        problems.append(_index_problems(*(arrays[one] for one in _OF_INDEX if one in arrays)))
    return next(chain.from_iterable(problems), "")


def _problems(arrays: Arrays, rules: Mapping[str, _Rule], sizes: dict[str, int]) -> Iterator[str]:
    for name, rule in rules.items():
        array = arrays[name]
        if array.dtype.kind not in _KINDS[rule.kind]:
            yield f"{name!r} holds {array.dtype}; expected {rule.kind}"
        if array.ndim != len(rule.shape):
            yield f"{name!r} has the shape {array.shape}; expected {len(rule.shape)} dimensions"
        for length, what in zip(array.shape, rule.shape, strict=True):
            plain, more = (what.removesuffix("+1"), int(what.endswith("+1"))) if isinstance(what, str) else (what, 0)
            expected = sizes.setdefault(plain, length - more) if isinstance(plain, str) else plain
            if length != expected + more or length < more:
                yield f"{name!r} has the shape {array.shape}; expected {expected + more} where it has {length}"
    for name, rule in rules.items():
        array = arrays[name]
        if rule.into:
            if rule.into in sizes and (int(array[0]), int(array[-1])) != (0, sizes[rule.into]):
                yield f"{name!r} leads from {array[0]} to {array[-1]}; expected from 0 to {sizes[rule.into]}"
            if _falls(array):
                yield f"{name!r} does not rise"
        if rule.rising and _falls(array):
            yield f"{name!r} does not rise"
        if rule.least is not None and len(array) and int(array.min()) < rule.least:
            yield f"{name!r} has the value {array.min()}; expected {rule.least} at least"
        bound = sizes.get(rule.below) if isinstance(rule.below, str) else rule.below
        if bound is not None and len(array) and int(array.max()) >= bound:
            yield f"{name!r} has the value {array.max()}; expected less than {bound}"


def _falls(array: npt.NDArray[Any]) -> bool:
    """Whether any value is less than the one before it."""
    return any(
        bool((array[first + 1 : first + 1 + _PIECE] < array[first : first + _PIECE][: len(array) - first - 1]).any())
        for first in range(0, len(array) - 1, _PIECE)
    )


def _tree_problems(*arrays: npt.NDArray[Any]) -> Iterator[str]:
    """What is wrong with a tree whose rows stand layer by layer: each child is one layer below its only parent."""
    if len(arrays) < 1 + len(_OF_TREE):
        return
    offsets, indptr, children, parents = arrays
    if len(offsets) < 2 or len(indptr) != len(parents) - int(offsets[1]) + 1:
        yield f"{len(indptr) - 1} nodes have children; expected those above the lowest of {len(offsets) - 1} layers"
        return
    layers = _layers(offsets)
    owners = np.arange(int(offsets[1]), len(parents)).repeat(_lengths(indptr))
    again = (children[1:] <= children[:-1]) & (owners[1:] == owners[:-1])
    if again.any() or len(children) != np.count_nonzero(parents >= 0) or (parents[children] != owners).any():
        yield "children and parents do not agree"
    if (layers[children] + 1 != layers[owners]).any():
        yield "a node's parent is not in the layer above it"


def _index_problems(*arrays: npt.NDArray[Any]) -> Iterator[str]:
    """What is wrong with the links of C-HNSW: within levels, down by one, and an entry on each level with nodes."""
    if len(arrays) < len(_OF_INDEX):
        return
    offsets, indptr, indices, down, entries = arrays
    levels, sizes = _layers(offsets), _lengths(offsets)
    if (levels[indices] != levels.repeat(_lengths(indptr))).any():
        yield "a link leads to another level"
    below = np.concatenate([[0], sizes])[levels]  # how many nodes the level below each node has
    if ((down >= 0) != (below > 0)).any() or (levels[down[down >= 0]] + 1 != levels[down >= 0]).any():
        yield "a link down does not lead to the level below"
    entered = np.flatnonzero(sizes)
    if (entries[entered] < 0).any() or (levels[entries[entered]] != entered).any():
        yield "a level has no entry on it"


def _lengths(bounds: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """How much stands between each bound and the next."""
    whole = bounds.astype(np.int64)
    lengths: npt.NDArray[np.int64] = whole[1:] - whole[:-1]
    return lengths


def _layers(offsets: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """The layer of each row."""
    return np.arange(len(offsets) - 1).repeat(_lengths(offsets))
