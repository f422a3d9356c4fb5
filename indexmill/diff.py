"""The difference between two snapshots, from their manifests and the tables of the shards that differ.

    from indexmill.diff import diff

    changed = diff("store", a=6, b=7)
    changed.documents.added        # pyarrow.Array of ids

Shards with the same digest in both snapshots are not read. The others are compared in groups of shards whose labels
share a prefix, since these may contain the same rows. So only the ids of one group and the changed ids are in memory.
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

import indexmill
from indexmill.errors import SnapshotNotFound
from indexmill.retrieve.method_registry import METHODS
from indexmill.snapshot import Snapshot
from indexmill.store.artifact_listing import Artifact
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.manifest import Manifest, Ref
from indexmill.store.reader import StoreReader
from indexmill.store.table_reader import read_table

Groups = Iterator[tuple[list[Artifact], list[Artifact]]]


@dataclass(frozen=True)
class DocumentDiff:
    """Sorted ids of documents; each document counts in exactly one field."""

    added: pa.Array
    removed: pa.Array
    changed: pa.Array
    """Documents in both snapshots whose content hashes differ."""
    moved_from: pa.Array
    moved_to: pa.Array
    """Documents with the same title, text and metadata under another id, such as renamed files, in pairs.

    Among equal documents, those of the same source are paired first, then the others in the order of their ids.
    """
    unchanged: int


@dataclass(frozen=True)
class Entities:
    """Entities that only one of the two snapshots has."""

    added: int
    removed: int
    added_names: tuple[str, ...]
    """The surfaces of the most mentioned entities, ten by default."""
    removed_names: tuple[str, ...]


@dataclass(frozen=True)
class ByteSizes:
    """Bytes of artifacts; each blob counts once."""

    a: int
    b: int
    new: int
    """Bytes of blobs that b has and a lacks."""


@dataclass(frozen=True)
class Difference:
    """Everything that differs between the snapshots a and b."""

    a: Snapshot
    b: Snapshot
    equal: bool
    """True if both have the same manifest; then nothing differs."""
    documents: DocumentDiff
    passages_added: int
    passages_removed: int
    rows: Mapping[str, tuple[int, int]]
    """Numbers of added and removed summaries, communities and other rows of family tables, by table name."""
    entities: Entities
    bytes: ByteSizes
    bytes_of: Mapping[str, ByteSizes]
    """Sizes by the first part of the artifacts' names, such as `documents`, `vectors` or `names`."""
    cost: Mapping[str, float]
    """The total cost of the runs that published the versions after the older snapshot, up to the newer one."""

    def settings(self) -> dict[str, tuple[Any, Any]]:
        """Return the settings that differ, by path, as pairs of the values of a and b; None for a missing setting."""
        return differing(self.a.manifest.configuration, self.b.manifest.configuration)

    def models(self) -> dict[str, tuple[Any, Any]]:
        """Return the model fingerprints that differ, by path, as pairs of the values of a and b."""
        return differing(self.a.manifest.models, self.b.manifest.models)

    def environment(self) -> dict[str, tuple[Any, Any]]:
        """Return the library versions, precision and processor features that differ."""
        return differing(self.a.manifest.environment, self.b.manifest.environment)

    def families(self) -> dict[str, dict[str, Any]]:
        """Return, per family, the counts of a and b (None if it is missing) and the parameters that differ, by path."""
        ours, theirs = self.a.manifest.families, self.b.manifest.families
        pairs = {name: (ours.get(name), theirs.get(name)) for name in sorted({*ours, *theirs})}
        return {
            name: {
                "a": old and old.counts,
                "b": new and new.counts,
                "parameters": differing(old.parameters if old else {}, new.parameters if new else {}),
            }
            for name, (old, new) in pairs.items()
        }

    def to_json(self, limit: int = 10) -> dict[str, Any]:
        """Return the difference as a JSON object, with at most ``limit`` ids of each kind."""
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
            "bytes": {**asdict(self.bytes), "of": {name: asdict(one) for name, one in self.bytes_of.items()}},
            "cost": dict(self.cost),
            "settings": self.settings(),
            "models": self.models(),
            "environment": self.environment(),
        }


def diff(path: str | os.PathLike[str], a: int | None = None, b: int | None = None, names: int = 10) -> Difference:
    """Compare versions a and b of a store; by default, b is the newest version and a its parent.

    names: the maximum number of entities to name. Raises SnapshotNotFound if there is no such store or version, or b
    has no parent, CorruptBlob if a table that must be read is damaged.
    """
    store = StoreReader(os.fspath(path))
    newer = store.resolve(version=b)
    older = a if a is not None else newer.parent
    if older is None:
        raise SnapshotNotFound(f"{store.url}: version {newer.version} has no parent; pass the version to compare with")
    with (
        indexmill.open(store.url, version=older) as from_snapshot,
        indexmill.open(store.url, version=newer.version) as to_snapshot,
    ):
        low, high = sorted((older, newer.version))
        between = [store.ref(version) for version in store.versions() if low < version <= high]
        return compare(from_snapshot, to_snapshot, names=names, between=between)


def compare(a: Snapshot, b: Snapshot, *, names: int = 10, between: Sequence[Ref] = ()) -> Difference:
    """Compare two snapshots, even of different stores or exports. between: the refs whose costs are summed."""
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
    """Yield the differing shards of a table, in groups of a's and b's shards that may contain the same rows."""
    sides = [{shard.name: shard for shard in snapshot.shards(table)} for snapshot in (a, b)]
    shared = {shard.digest for shard in sides[0].values()} & {shard.digest for shard in sides[1].values()}
    from_shards, to_shards = ({n: one for n, one in side.items() if one.digest not in shared} for side in sides)
    groups: list[list[str]] = []
    for name in sorted({*from_shards, *to_shards}):
        if groups and name.startswith(groups[-1][0]):
            groups[-1].append(name)
        else:
            groups.append([name])
    for group in groups:
        yield [from_shards[n] for n in group if n in from_shards], [to_shards[n] for n in group if n in to_shards]


def _read(snapshot: Snapshot, shards: Sequence[Artifact], *columns: str) -> pa.Table:
    """Read columns of some shards into one table, which has no rows if there are no shards."""
    tables = [read_table(snapshot.file(shard.name), shard, columns) for shard in shards]
    return pa.concat_tables(tables) if tables else _no_rows(*columns)


def _no_rows(*columns: str) -> pa.Table:
    return pa.schema([(column, pa.string()) for column in columns]).empty_table()


def _absent(ids: pa.ChunkedArray, others: pa.ChunkedArray) -> pa.ChunkedArray:
    """Return a mask of the ids that are not in ``others``."""
    return pc.invert(pc.is_in(ids, value_set=others))


# Rows


_HASHED = ("document_id", "content_hash")


def _documents(a: Snapshot, b: Snapshot) -> DocumentDiff:
    gone, come, edited = [_no_rows(*_HASHED)], [_no_rows(*_HASHED)], [_no_rows(*_HASHED)]
    for from_shards, to_shards in _groups(a, b, "documents"):
        old, new = _read(a, from_shards, *_HASHED), _read(b, to_shards, *_HASHED)
        at = pc.index_in(old["document_id"], value_set=new["document_id"])
        gone.append(old.filter(pc.is_null(at)))
        come.append(new.filter(_absent(new["document_id"], old["document_id"])))
        before, after = old.filter(pc.is_valid(at)), new.take(at.drop_null())
        edited.append(after.filter(pc.not_equal(before["content_hash"], after["content_hash"])))
    removed, removed_hashes = _sorted(gone)
    added, added_hashes = _sorted(come)
    changed, _ = _sorted(edited)
    from_rows, to_rows = _moves(removed_hashes, added_hashes)
    from_rest, to_rest = _rest(removed, from_rows), _rest(added, to_rows)
    if len(from_rest) and len(to_rest):
        # The content hash covers the source, which changes when a file is renamed; compare the contents instead.
        here, there = _moves(_bodies(a, b, removed.take(from_rest)), _bodies(b, a, added.take(to_rest)))
        from_rows = np.concatenate([from_rows, from_rest[here]])
        to_rows = np.concatenate([to_rows, to_rest[there]])
    order = np.argsort(to_rows)
    return DocumentDiff(
        added=added.take(_rest(added, to_rows)),
        removed=removed.take(_rest(removed, from_rows)),
        changed=changed,
        moved_from=removed.take(from_rows[order]),
        moved_to=added.take(to_rows[order]),
        unchanged=b.manifest.corpus.documents - len(added) - len(changed),
    )


def _sorted(documents: list[pa.Table]) -> tuple[pa.Array, pa.Array]:
    """Sort documents by id; return their ids and content hashes."""
    table = pa.concat_tables(documents, promote_options="default").sort_by("document_id")
    ids, hashes = (pa.concat_arrays([pa.array([], pa.string()), *table[name].chunks]) for name in _HASHED)
    return ids, hashes


def _moves(gone: pa.Array, come: pa.Array) -> tuple[np.ndarray, np.ndarray]:
    """Pair rows with equal hashes, the n-th such row in ``gone`` with the n-th in ``come``; return the row numbers."""
    at = pc.index_in(_numbered(gone), value_set=_numbered(come))
    return np.flatnonzero(at.is_valid()), at.drop_null().to_numpy().astype(np.int64)


def _numbered(hashes: pa.Array) -> pa.Array:
    """Append to each hash the number of equal hashes before it."""
    codes = hashes.dictionary_encode().indices.to_numpy()
    order = np.argsort(codes, kind="stable")
    ordered = codes[order]
    ranks = np.empty(len(order), np.int64)
    ranks[order] = np.arange(len(order)) - np.searchsorted(ordered, ordered)
    return pc.binary_join_element_wise(hashes, pa.array(ranks).cast(pa.string()), " ")


def _rest(ids: pa.Array, rows: np.ndarray) -> np.ndarray:
    """Return the row numbers of ``ids`` that are not in ``rows``."""
    keep = np.ones(len(ids), bool)
    keep[rows] = False
    return np.flatnonzero(keep)


def _bodies(snapshot: Snapshot, other_snapshot: Snapshot, ids: pa.Array) -> pa.Array:
    """Return a digest of each document's title, text and metadata, read from shards that the other snapshot lacks."""
    digests: dict[str, str] = {}
    for shards, _ in _groups(snapshot, other_snapshot, "documents"):
        for shard in shards:
            chosen = pc.is_in(_read(snapshot, [shard], "document_id")["document_id"], value_set=ids)
            if _count(chosen):
                columns = ("document_id", "title", "text", "metadata")
                for row in _read(snapshot, [shard], *columns).filter(chosen).to_pylist():
                    identity = row.pop("document_id")
                    digests[identity] = digest_of(canonical_json(row))
    return pa.array([digests[identity] for identity in ids.to_pylist()], pa.string())


def _counted(a: Snapshot, b: Snapshot, table: str, column: str) -> tuple[int, int]:
    """Count the ids of a table that were added and removed from a to b."""
    added = removed = 0
    for from_shards, to_shards in _groups(a, b, table):
        ids, new_ids = _read(a, from_shards, column)[column], _read(b, to_shards, column)[column]
        added += _count(_absent(new_ids, ids))
        removed += _count(_absent(ids, new_ids))
    return added, removed


def _count(mask: pa.ChunkedArray) -> int:
    return int(pc.sum(mask).as_py() or 0)


def _entities(a: Snapshot, b: Snapshot, names: int) -> Entities:
    counts = [0, 0]
    largest: list[list[tuple[int, str, str]]] = [[], []]
    for from_shards, to_shards in _groups(a, b, "entities"):
        ids, new_ids = (
            _read(snapshot, shards, "entity_id")["entity_id"] for snapshot, shards in ((a, from_shards), (b, to_shards))
        )
        for side, snapshot, shards, mask in (
            (0, b, to_shards, _absent(new_ids, ids)),
            (1, a, from_shards, _absent(ids, new_ids)),
        ):
            entity_count = _count(mask)
            counts[side] += entity_count
            if entity_count and names:
                largest[side] = sorted([*largest[side], *_most_mentioned(snapshot, shards, mask, names)])[:names]
    added, removed = (tuple(surface for _, _, surface in side) for side in largest)
    return Entities(counts[0], counts[1], added, removed)


def _most_mentioned(
    snapshot: Snapshot, shards: Sequence[Artifact], mask: pa.ChunkedArray, names: int
) -> list[tuple[int, str, str]]:
    """Return the ``names`` most mentioned entities as (negated number of mentions, id, surface)."""
    table = _read(snapshot, shards, "entity_id", "surface", "mentions").filter(mask)
    first = pc.select_k_unstable(table, k=names, sort_keys=[("mentions", "descending"), ("entity_id", "ascending")])
    return [(-row["mentions"], row["entity_id"], row["surface"]) for row in table.take(first).to_pylist()]


# Records


def _sizes(a: Sequence[Artifact], b: Sequence[Artifact]) -> ByteSizes:
    from_sizes, to_sizes = ({artifact.digest: artifact.bytes for artifact in side} for side in (a, b))
    new = sum(size for digest, size in to_sizes.items() if digest not in from_sizes)
    return ByteSizes(sum(from_sizes.values()), sum(to_sizes.values()), new)


def _sizes_of(a: Manifest, b: Manifest) -> dict[str, ByteSizes]:
    sides = [defaultdict[str, list[Artifact]](list) for _ in (a, b)]
    for side, manifest in zip(sides, (a, b), strict=True):
        for artifact in manifest.artifacts:
            side[artifact.name.partition("/")[0]].append(artifact)
    return {name: _sizes(sides[0][name], sides[1][name]) for name in sorted({*sides[0], *sides[1]})}


def _summed(refs: Sequence[Ref]) -> dict[str, float]:
    cost: dict[str, float] = {}
    for ref in refs:
        for name, value in ref.cost.items():
            if isinstance(value, (int, float)):
                cost[name] = cost.get(name, 0) + value
    return dict(sorted(cost.items()))


def differing(a: Mapping[str, Any], b: Mapping[str, Any]) -> dict[str, tuple[Any, Any]]:
    """Return the leaves of nested mappings that differ, by path, as pairs of the values of a and b; None if missing."""
    from_leaves, to_leaves = dict(_flat(a)), dict(_flat(b))
    return {
        path: (from_leaves.get(path), to_leaves.get(path))
        for path in sorted({*from_leaves, *to_leaves})
        if (path in from_leaves, from_leaves.get(path)) != (path in to_leaves, to_leaves.get(path))
    }


def _flat(value: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the leaves of nested mappings by path, such as `split.passage_tokens`."""
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
