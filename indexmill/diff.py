"""What changed between two snapshots, told from their manifests and from the tables of the shards that differ.

    from indexmill.diff import diff

    changed = diff("store", a=6, b=7)
    changed.documents.added        # pyarrow.Array of ids

Shards whose artifact has the same digest in both are not read. The others are compared a group at a time: a group is
the shards of both that may hold the same rows, which are those whose labels begin alike. So memory holds the ids of one
group, and of what changed.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.errors import SnapshotNotFound
from indexmill.retrieve.registry import METHODS
from indexmill.snapshot import Snapshot, open_snapshot
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.folder import FolderReader
from indexmill.store.manifest import Artifact, Manifest, Ref
from indexmill.store.tables import read_table

__all__ = ["Difference", "Documents", "Entities", "Sizes", "compare", "diff"]

Groups = Iterator[tuple[list[Artifact], list[Artifact]]]


@dataclass(frozen=True)
class Documents:
    """Documents by id, in the order of the ids; each is in one of these alone."""

    added: pa.Array
    removed: pa.Array
    changed: pa.Array
    """In both, with another content hash."""
    moved_from: pa.Array
    moved_to: pa.Array
    """The same title, text and metadata under another id, pair by pair, as of a renamed file.

    Of several that are alike those of one source are paired first, then in the order of the ids.
    """
    unchanged: int


@dataclass(frozen=True)
class Entities:
    """Entities that one of the two has and the other lacks."""

    added: int
    removed: int
    added_names: tuple[str, ...]
    """Surfaces of the most mentioned, the first ten unless the caller asks for more."""
    removed_names: tuple[str, ...]


@dataclass(frozen=True)
class Sizes:
    """Bytes of artifacts, a blob counted once."""

    a: int
    b: int
    new: int
    """Of blobs that b has and a lacks."""


@dataclass(frozen=True)
class Difference:
    """Everything that differs between the snapshots a and b."""

    a: Snapshot
    b: Snapshot
    equal: bool
    """Whether they have the same manifest; then nothing differs."""
    documents: Documents
    passages_added: int
    passages_removed: int
    rows: Mapping[str, tuple[int, int]]
    """Summaries, communities and other rows of the families' tables that came and went, by their table's name."""
    entities: Entities
    bytes: Sizes
    bytes_of: Mapping[str, Sizes]
    """By the first word of the artifacts' names: `documents`, `vectors`, `names`."""
    cost: Mapping[str, float]
    """What the runs spent that published the versions after the older one, up to the newer one."""

    def settings(self) -> dict[str, tuple[Any, Any]]:
        """The settings that differ, by their path: what a has, what b has; None where one has no such setting."""
        return _differing(self.a.manifest.configuration, self.b.manifest.configuration)

    def models(self) -> dict[str, tuple[Any, Any]]:
        """What differs in the fingerprints of the models, by path."""
        return _differing(self.a.manifest.models, self.b.manifest.models)

    def environment(self) -> dict[str, tuple[Any, Any]]:
        """The library versions, precision and processor features that differ."""
        return _differing(self.a.manifest.environment, self.b.manifest.environment)

    def families(self) -> dict[str, dict[str, Any]]:
        """Per family the counts of a and of b (None where it is missing), and the parameters that differ, by path."""
        one, other = self.a.manifest.families, self.b.manifest.families
        return {
            name: {
                "a": one[name].counts if name in one else None,
                "b": other[name].counts if name in other else None,
                "parameters": _differing(
                    one[name].parameters if name in one else {}, other[name].parameters if name in other else {}
                ),
            }
            for name in sorted({*one, *other})
        }

    def to_json(self, limit: int = 10) -> dict[str, Any]:
        """The difference as one JSON object, with at most so many ids of each kind."""
        documents = self.documents
        moved = zip(documents.moved_from[:limit].to_pylist(), documents.moved_to[:limit].to_pylist(), strict=True)
        return {
            "a": _side(self.a),
            "b": _side(self.b),
            "equal": self.equal,
            "documents": {
                "added": len(documents.added),
                "changed": len(documents.changed),
                "removed": len(documents.removed),
                "moved": len(documents.moved_to),
                "unchanged": documents.unchanged,
            },
            "document_ids": {
                "added": documents.added[:limit].to_pylist(),
                "changed": documents.changed[:limit].to_pylist(),
                "removed": documents.removed[:limit].to_pylist(),
                "moved": [{"from": before, "to": after} for before, after in moved],
            },
            "passages": {"added": self.passages_added, "removed": self.passages_removed},
            **{name: {"added": came, "removed": went} for name, (came, went) in self.rows.items()},
            "entities": {"added": self.entities.added, "removed": self.entities.removed},
            "entity_names": {
                "added": list(self.entities.added_names[:limit]),
                "removed": list(self.entities.removed_names[:limit]),
            },
            "families": self.families(),
            "bytes": {
                "a": self.bytes.a,
                "b": self.bytes.b,
                "new": self.bytes.new,
                "of": {name: {"a": one.a, "b": one.b, "new": one.new} for name, one in self.bytes_of.items()},
            },
            "cost": dict(self.cost),
            "settings": self.settings(),
            "models": self.models(),
            "environment": self.environment(),
        }


def diff(path: str | os.PathLike[str], a: int | None = None, b: int | None = None, names: int = 10) -> Difference:
    """What changed from version a to version b of a store: from the parent of b to the newest unless they are given.

    names: how many entities are named. Raises SnapshotNotFound where there is no such store or version, and where b
    has no parent, CorruptBlob where a table that has to be read is damaged.
    """
    store = FolderReader(os.fspath(path))
    newer = store.resolve(version=b)
    older = a if a is not None else newer.parent
    if older is None:
        raise SnapshotNotFound(f"{store.root}: version {newer.version} has no version before it: name one to compare")
    with (
        open_snapshot(store.root, version=older) as one,
        open_snapshot(store.root, version=newer.version) as other,
    ):
        low, high = sorted((older, newer.version))
        between = [store.ref(version) for version in store.versions() if low < version <= high]
        return compare(one, other, names=names, between=between)


def compare(a: Snapshot, b: Snapshot, *, names: int = 10, between: Sequence[Ref] = ()) -> Difference:
    """What changed from snapshot a to snapshot b, which may be of different stores, or exported folders.

    between: the refs whose costs count.
    """
    added, removed = _counted(a, b, "passages", "passage_id")
    return Difference(
        a=a,
        b=b,
        equal=a.manifest == b.manifest,
        documents=_documents(a, b),
        passages_added=added,
        passages_removed=removed,
        rows={name: _counted(a, b, name, key) for family in METHODS.values() for name, key in family.tables.items()},
        entities=_entities(a, b, names),
        bytes=_sizes(a.manifest.artifacts, b.manifest.artifacts),
        bytes_of=_sizes_of(a.manifest, b.manifest),
        cost=_summed(between),
    )


# Shards


def _groups(a: Snapshot, b: Snapshot, table: str) -> Groups:
    """The shards of a table that differ, in groups of a's and b's that may hold the same rows."""
    sides = [{shard.name: shard for shard in snapshot.shards(table)} for snapshot in (a, b)]
    shared = {shard.digest for shard in sides[0].values()} & {shard.digest for shard in sides[1].values()}
    left, right = ({n: one for n, one in side.items() if one.digest not in shared} for side in sides)
    root: str | None = None
    group: list[str] = []
    for name in sorted({*left, *right}):
        if root is None or not name.startswith(root):
            if group:
                yield [left[n] for n in group if n in left], [right[n] for n in group if n in right]
            root, group = name, []
        group.append(name)
    if group:
        yield [left[n] for n in group if n in left], [right[n] for n in group if n in right]


def _read(snapshot: Snapshot, shards: Sequence[Artifact], *columns: str) -> list[pa.Array]:
    """Columns of some shards, one after the other; empty texts where there is no shard."""
    tables = [read_table(snapshot.file(shard.name), shard, columns) for shard in shards]
    if not tables:
        return [pa.array([], pa.string()) for _ in columns]
    table = pa.concat_tables(tables)
    return [_array(table[column]) for column in columns]


def _array(column: pa.ChunkedArray) -> pa.Array:
    chunks = column.combine_chunks()
    return chunks if isinstance(chunks, pa.Array) else pa.concat_arrays(chunks.chunks)


def _absent(ids: pa.Array, others: pa.Array) -> pa.Array:
    """Which ids are not among the others."""
    return pc.invert(pc.is_in(ids, value_set=others))


# Rows


def _documents(a: Snapshot, b: Snapshot) -> Documents:
    added, removed, changed = _Pairs(), _Pairs(), _Pairs()
    for left, right in _groups(a, b, "documents"):
        ids, hashes = _read(a, left, "document_id", "content_hash")
        new_ids, new_hashes = _read(b, right, "document_id", "content_hash")
        at = pc.index_in(ids, value_set=new_ids)
        stays = pc.is_valid(at)
        removed.add(ids, hashes, pc.invert(stays))
        added.add(new_ids, new_hashes, _absent(new_ids, ids))
        before, after = hashes.filter(stays), new_hashes.take(at.drop_null())
        changed.add(ids.filter(stays), after, pc.not_equal(before, after))
    gone, come = removed.sorted(), added.sorted()
    from_rows, to_rows = _moves(gone[1], come[1])
    from_rest, to_rest = _rest(gone[0], from_rows), _rest(come[0], to_rows)
    if len(from_rest) and len(to_rest):
        # A content hash covers the source, which of a renamed file is another: so the contents themselves are compared.
        bodies = _bodies(a, b, gone[0].take(pa.array(from_rest))), _bodies(b, a, come[0].take(pa.array(to_rest)))
        here, there = _moves(*bodies)
        from_rows = np.concatenate([from_rows, from_rest[here]])
        to_rows = np.concatenate([to_rows, to_rest[there]])
    moved_to = come[0].take(pa.array(to_rows))
    order = pc.sort_indices(moved_to)
    changed_ids = changed.sorted()[0]
    return Documents(
        added=come[0].take(pa.array(_rest(come[0], to_rows))),
        removed=gone[0].take(pa.array(_rest(gone[0], from_rows))),
        changed=changed_ids,
        moved_from=gone[0].take(pa.array(from_rows)).take(order),
        moved_to=moved_to.take(order),
        unchanged=b.manifest.corpus.documents - len(come[0]) - len(changed_ids),
    )


class _Pairs:
    """Ids with their content hashes, gathered group by group."""

    def __init__(self) -> None:
        self._ids: list[pa.Array] = []
        self._hashes: list[pa.Array] = []

    def add(self, ids: pa.Array, hashes: pa.Array, chosen: pa.Array) -> None:
        self._ids.append(ids.filter(chosen))
        self._hashes.append(hashes.filter(chosen))

    def sorted(self) -> tuple[pa.Array, pa.Array]:
        """All of them, ordered by id."""
        none = [pa.array([], pa.string())]
        ids, hashes = pa.concat_arrays(self._ids or none), pa.concat_arrays(self._hashes or none)
        order = pc.sort_indices(ids)
        return ids.take(order), hashes.take(order)


def _moves(gone: pa.Array, come: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """The rows of both that have the same hash, pair by pair: the n-th of a hash here with the n-th there."""
    rows, other_rows = (
        np.flatnonzero(pc.is_in(hashes, value_set=others).to_numpy(zero_copy_only=False))
        for hashes, others in ((gone, come), (come, gone))
    )
    both = pa.concat_arrays([gone.take(pa.array(rows)), come.take(pa.array(other_rows))]).dictionary_encode()
    codes = both.indices.to_numpy(zero_copy_only=False).astype(np.int64)
    most = len(codes) + 1
    keys, other_keys = (part * most + _rank(part) for part in (codes[: len(rows)], codes[len(rows) :]))
    _, here, there = np.intersect1d(keys, other_keys, assume_unique=True, return_indices=True)
    return rows[here], other_rows[there]


def _rank(codes: np.ndarray) -> np.ndarray:
    """How many of the same code come before each."""
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    first = np.searchsorted(ordered, ordered, side="left")
    ranks = np.empty(len(codes), np.int64)
    ranks[order] = np.arange(len(codes)) - first
    return ranks


def _rest(ids: pa.Array, rows: np.ndarray) -> np.ndarray:
    """The rows of some ids without these."""
    keep = np.ones(len(ids), bool)
    keep[rows] = False
    return np.flatnonzero(keep)


def _bodies(snapshot: Snapshot, other: Snapshot, ids: pa.Array) -> pa.Array:
    """A digest of title, text and metadata for each of some documents in the snapshot's shards that the other lacks."""
    found: dict[str, str] = {}
    columns = ("document_id", "title", "text", "metadata")
    for shards, _ in _groups(snapshot, other, "documents"):
        for shard in shards:
            (held,) = _read(snapshot, [shard], "document_id")
            chosen = pc.is_in(held, value_set=ids)
            if _count(chosen):
                values = [column.filter(chosen).to_pylist() for column in _read(snapshot, [shard], *columns)]
                for identity, *body in zip(*values, strict=True):
                    found[identity] = digest_of(canonical_json(body))
    return pa.array([found[identity] for identity in ids.to_pylist()], pa.string())


def _counted(a: Snapshot, b: Snapshot, table: str, column: str) -> tuple[int, int]:
    """How many ids of a table b has and a lacks, and the other way round."""
    added = removed = 0
    for left, right in _groups(a, b, table):
        (ids,), (new_ids,) = _read(a, left, column), _read(b, right, column)
        added += _count(_absent(new_ids, ids))
        removed += _count(_absent(ids, new_ids))
    return added, removed


def _count(mask: pa.Array) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _entities(a: Snapshot, b: Snapshot, names: int) -> Entities:
    counts = [0, 0]
    largest: list[list[tuple[int, str, str]]] = [[], []]
    for left, right in _groups(a, b, "entities"):
        (ids,), (new_ids,) = _read(a, left, "entity_id"), _read(b, right, "entity_id")
        for side, snapshot, shards, mask in (
            (0, b, right, _absent(new_ids, ids)),
            (1, a, left, _absent(ids, new_ids)),
        ):
            found = _count(mask)
            counts[side] += found
            if found and names:
                largest[side] = sorted([*largest[side], *_most_mentioned(snapshot, shards, mask, names)])[:names]
    added, removed = (tuple(surface for _, _, surface in side) for side in largest)
    return Entities(counts[0], counts[1], added, removed)


def _most_mentioned(
    snapshot: Snapshot, shards: Sequence[Artifact], mask: pa.Array, names: int
) -> list[tuple[int, str, str]]:
    """Minus the mentions, the id and the surface of so many entities."""
    columns = ["entity_id", "surface", "mentions"]
    table = pa.table(dict(zip(columns, _read(snapshot, shards, *columns), strict=True))).filter(mask)
    first = pc.select_k_unstable(table, k=names, sort_keys=[("mentions", "descending"), ("entity_id", "ascending")])
    return [(-row["mentions"], row["entity_id"], row["surface"]) for row in table.take(first).to_pylist()]


# Records


def _sizes(a: Sequence[Artifact], b: Sequence[Artifact]) -> Sizes:
    one, other = ({artifact.digest: artifact.bytes for artifact in side} for side in (a, b))
    new = sum(size for digest, size in other.items() if digest not in one)
    return Sizes(sum(one.values()), sum(other.values()), new)


def _sizes_of(a: Manifest, b: Manifest) -> dict[str, Sizes]:
    def parted(manifest: Manifest) -> dict[str, list[Artifact]]:
        found: dict[str, list[Artifact]] = {}
        for artifact in manifest.artifacts:
            found.setdefault(artifact.name.partition("/")[0], []).append(artifact)
        return found

    one, other = parted(a), parted(b)
    return {name: _sizes(one.get(name, []), other.get(name, [])) for name in sorted({*one, *other})}


def _summed(refs: Sequence[Ref]) -> dict[str, float]:
    cost: dict[str, float] = {}
    for ref in refs:
        for name, value in ref.cost.items():
            if isinstance(value, (int, float)):
                cost[name] = cost.get(name, 0) + value
    return dict(sorted(cost.items()))


def _differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    one, other = dict(_flat(a)), dict(_flat(b))
    return {
        path: (one.get(path), other.get(path))
        for path in sorted({*one, *other})
        if (path in one, one.get(path)) != (path in other, other.get(path))
    }


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """The leaves of nested mappings by their path, `split.passage_tokens`."""
    for name, item in value.items():
        if isinstance(item, Mapping) and item:
            yield from _flat(item, f"{path}{name}.")
        else:
            yield path + name, item


def _side(snapshot: Snapshot) -> dict[str, Any]:
    ref, corpus = snapshot.ref, snapshot.manifest.corpus
    return {
        "version": snapshot.version,
        "manifest": digest_of(snapshot.manifest.to_bytes()) if ref is None else ref.manifest,
        "created": None if ref is None else ref.created,
        "run": None if ref is None else ref.run_id,
        "note": "" if ref is None else ref.note,
        "documents": corpus.documents,
        "passages": corpus.passages,
    }
