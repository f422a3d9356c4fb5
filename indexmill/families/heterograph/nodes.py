"""The nodes of a snapshot's heterograph by row, and their conversion into hits.

A row is a node's position in the pack ``heterograph/graph``, kind by kind. The pack's array ``rows`` maps it to the row
in the tables of its kind, shards concatenated: passages, units, attributes, elements, ``heterograph/relations``,
entities, and elements again for their overviews.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from itertools import islice, repeat
from typing import Literal

import numpy as np

from indexmill.errors import CorruptBlob
from indexmill.families.heterograph.name_words import NameWords
from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.hits import Hit, NodeLabel
from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.columns import Pairs, paired, parts, positions, products, slices
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.entity_names import name_vectors_of
from indexmill.retrieve.matrices import Rows, Scores, Sparse
from indexmill.retrieve.method_registry import check_family
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import Allowed, Explanations, Vectors
from indexmill.retrieve.table_rows import TableRows
from indexmill.text.canonical_names import NameIndex

_HETEROGRAPH: CacheKey[HeterographNodes] = CacheKey("heterograph")

GRAPH = "heterograph/graph"

NAMES = "heterograph/names"
"""The artifact that contains the words of names and overviews."""

SHOWN = {
    "T": "text",
    "S": "unit",
    "A": "attribute",
    "H": "high-level",
    "R": "relation",
    "N": "entity",
    "O": "overview",
}
"""The kinds of nodes as hits and explanations name them; the last two occur only in explanations."""

_VECTORS = {"S": "unit_vectors", "A": "attribute_vectors", "H": "element_vectors"}


class HeterographNodes:
    """The nodes of a snapshot, their graph, and the words of its names.

    graph: the nodes and links. names: finds an entity by canonical name; row i is the graph's i-th entity. words: the
    words of entities and overviews, in the order of their nodes.

    Raises FamilyNotFound for a snapshot without the family, CorruptBlob if arrays are missing or do not match tables.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        check_family(artifacts.manifest, artifacts.path, "heterograph", ", so it has no such nodes")
        self._path, self._version = artifacts.path, artifacts.version
        self._passages = passages_of(artifacts)
        self._tables = {
            "S": TableRows(artifacts, "units", ["unit_id", "text"]),
            "A": TableRows(artifacts, "attributes", ["attribute_id", "entity_id", "text", "tokens", "stand_in"]),
            "H": TableRows(artifacts, "elements", ["element_id", "overview_id", "title", "text", "tokens", "stand_in"]),
            "R": TableRows(artifacts, "heterograph/relations", ["node_id", "said"]),
            "N": TableRows(artifacts, "entities", ["entity_id", "surface"]),
        }
        self._relation_parts = TableRows(artifacts, "heterograph/relations", ["source", "text", "target"])
        self._labels = entity_labels_of(artifacts)
        arrays = artifacts.arrays(GRAPH)
        self.graph = Heterograph.of(arrays)
        self._support = Sparse.of(arrays, "passages")
        self._entity_keys = arrays["entity_keys"]
        self.names, self.words = NameIndex(self._entity_keys), NameWords.of(artifacts.arrays(NAMES))
        self._rows = arrays["rows"]
        self._relation_tokens = arrays["relation_tokens"]
        of_kinds = {kind: artifacts.vectors(pack, "vectors") for kind, pack in _VECTORS.items()}
        self._vectors = [shard for shards in of_kinds.values() for shard in shards]
        self._passage_vectors = artifacts.row_vectors("passages")
        self._units = artifacts.vectors("unit_vectors", "vectors")
        self._unit_tokens = artifacts.vectors("unit_vectors", "tokens")
        self.name_vectors, owners = name_vectors_of(artifacts)
        """The vectors of names, by shard; empty for a snapshot without a family that needs them."""
        at, has = positions(self._entity_keys, owners)
        self._name_rows = np.where(has, at, -1)
        vectors = {kind: sum(map(len, shards)) for kind, shards in of_kinds.items()}
        if problem := self._problem({kind: len(table) for kind, table in self._tables.items()}, vectors):
            raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} and the tables do not contain the same nodes: {problem}")
        retrieved = self._rows[: self.graph.offsets[4]] + self.graph.offsets[:4].repeat(np.diff(self.graph.offsets[:5]))
        self._nodes = np.argsort(retrieved).astype(np.int32)
        """The node of each row of the tables of texts, units, attributes and elements, kind after kind."""
        units = self.graph.rows("S")
        unit_passages = self._support.indices.take(self._support.indptr[units].astype(np.int64))
        self.text_of_unit = self.of_passages(unit_passages.astype(np.int64))
        """The text of each unit, in the order of units."""

    def __len__(self) -> int:
        return len(self.graph)

    # Finding nodes

    def nearest(self, questions: Vectors, k: int, allowed: Allowed | None = None) -> list[tuple[Rows, Scores]]:
        """Return the k units, attributes and high-level elements nearest to each question, and their cosines.

        questions: ``(n_questions, d) float32``. allowed: ``(n_nodes,)``, a mask of nodes; None for all. The search is
        exact; ties go to the first node in the order of the tables.
        """
        if not k:
            return [(np.empty(0, np.int64), np.empty(0))] * len(questions)
        nodes = self._nodes[self.graph.offsets[1] :]
        ranked = nearest(self._vectors, questions, k, None if allowed is None else allowed[nodes])
        return [(nodes[rows].astype(np.int64), cosines.astype(np.float64)) for rows, cosines in ranked]

    def showable(self, allowed: Allowed, readable: Allowed) -> Allowed:
        """Return a mask of the allowed nodes that readers of these passages may see: see ``Heterograph.showable``."""
        return self.graph.showable(allowed, self._labels.plain(readable))

    def of_passages(self, passages: Rows) -> Rows:
        """Return the rows of the text nodes of some passages, given the passages' rows."""
        return self._nodes[passages].astype(np.int64)

    def passages_of(self, texts: Rows) -> Rows:
        """Return the rows of the passages of some text nodes, given the nodes' rows."""
        return self._rows[texts].astype(np.int64)

    # Weights of entries

    def name_rows(self, entities: Rows) -> Rows:
        """Return the row in ``name_vectors`` of each entity's name, -1 if it has no vector."""
        rows: Rows = self._name_rows[entities - self.graph.rows("N").start]
        return rows

    def cosines(self, kind: Literal["T", "S"], pairs: Pairs, vectors: Vectors) -> Scores:
        """Return the cosines of (vector, node) pairs of texts or of units; vectors: ``(n_vectors, d)``."""
        owners, rows = parts(pairs)
        shards = self._passage_vectors if kind == "T" else self._units
        return products(shards, vectors, paired(owners, self._rows[rows].astype(np.int64))).astype(np.float64)

    # Labels and hits

    def label(self, row: int, readable: Allowed | None = None) -> NodeLabel:
        """Return the id, title and text of one node.

        The title of a text or a unit is its document's title, that of an attribute the surface of its entity. A
        relation has no title; entities and overviews have no text. readable: the passages that the user may read; None
        for all.
        """
        (kind,) = self.graph.kinds(np.array([row]))
        (passages,) = self._passages_behind(np.array([row])) if kind == "S" else (np.empty(0, dtype=np.int64),)
        return self._label(row, kind, passages, readable)

    def _label(self, row: int, kind: str, passages: Rows, readable: Allowed | None) -> NodeLabel:
        """Return the label of a node of this kind. passages: the passages that it comes from."""
        place = int(self._rows[row])
        if kind == "T":
            at = np.array([place])
            return NodeLabel(self._passages.ids(at)[0], self._passages.title(place), self._passages.text(place))
        if kind == "O":
            table = self._tables["H"]
            return NodeLabel(table.value(place, "overview_id"), table.value(place, "title"), "")
        table = self._tables[kind]
        if kind == "S":
            title = self._passages.title(int(passages[0]))
            return NodeLabel(table.value(place, "unit_id"), title, table.value(place, "text"))
        if kind == "A":
            return NodeLabel(table.value(place, "attribute_id"), self._about(row), table.value(place, "text"))
        if kind == "H":
            return NodeLabel(table.value(place, "element_id"), table.value(place, "title"), table.value(place, "text"))
        if kind == "R":
            return NodeLabel(table.value(place, "node_id"), "", self._text_of_relation(place, readable))
        (shown,) = self._labels.shown(np.array([place]), readable)
        return NodeLabel(table.value(place, "entity_id"), shown, "")

    def _text_of_relation(self, place: int, readable: Allowed | None) -> str:
        """Return the text of one relation, by its row in its table."""
        if readable is None:
            return str(self._tables["R"].value(place, "said"))
        source, wording, target = (
            str(self._relation_parts.value(place, name)) for name in ("source", "text", "target")
        )
        keys = NameIndex.keys([source, target])
        at, is_entity = positions(keys, self._entity_keys)
        if not is_entity.all():
            raise CorruptBlob(f"{self._path}: one end of a relation is not an entity of the graph")
        ends = self._labels.shown(self._rows[at + self.graph.rows("N").start].astype(np.int64), readable)
        return relation_text(ends[0], wording, ends[1])

    def tokens(self, row: int, readable: Allowed | None = None) -> int:
        """Return the number of tokens of a node's text; an estimate for a relation."""
        (kind,) = self.graph.kinds(np.array([row]))
        return self._tokens(row, kind, readable)

    def _tokens(self, row: int, kind: str, readable: Allowed | None) -> int:
        place = int(self._rows[row])
        if kind == "T":
            return self._passages.tokens(place)
        if kind == "R" and readable is not None:
            return len(self._text_of_relation(place, readable).encode()) // 4 + 1  # as builds estimate it
        if kind == "R":
            return int(self._relation_tokens[row - self.graph.rows("R").start])
        if kind == "S":
            number, at = self._tables["S"].locate(place)
            return int(self._unit_tokens[number][at])
        return int(self._tables[kind].value(place, "tokens"))

    def hits(
        self,
        rows: Rows,
        scores: Scores,
        explanations: Explanations = None,
        allowed: Allowed | None = None,
        readable: Allowed | None = None,
    ) -> list[Hit]:
        """Convert nodes into hits, and add the ids of the passages that each node comes from to its explanation.

        allowed: a mask of the passages that may be named. readable: a mask of the passages that the user may read; None
        for all in either mask.
        """
        hits = []
        come_from = self._passages_behind(rows)
        named = come_from if allowed is None else [passages[allowed[passages]] for passages in come_from]
        every = np.concatenate([np.empty(0, dtype=np.int64), *named])
        documents = iter(self._passages.documents_of(every))
        ids = iter([] if explanations is None else self._passages.ids(every))
        reasons = repeat(None, len(rows)) if explanations is None else explanations
        nodes = zip(
            rows.tolist(), self.graph.kinds(rows), come_from, map(len, named), scores.tolist(), reasons, strict=True
        )
        for row, kind, passages, count, score, reason in nodes:
            label = self._label(row, kind, passages, readable)
            explanation = None
            if reason is not None:
                explanation = {**reason, "passages": list(islice(ids, count))}
                if kind in ("A", "H") and self._tables[kind].value(int(self._rows[row]), "stand_in"):
                    explanation["stand_in"] = True
            hit = Hit(
                kind=SHOWN[kind],
                id=label.id,
                score=score,
                text=label.text,
                title=label.title,
                document_ids=tuple(sorted(set(islice(documents, count)))),
                tokens=self._tokens(row, kind, readable),
                version=self._version,
                explanation=explanation,
            )
            hits.append(hit)
        texts = [at for at, hit in enumerate(hits) if hit.kind == SHOWN["T"]]
        passages_of_texts = self._passages.hits(self._rows[rows[texts]], scores[texts])
        for at, passage in zip(texts, passages_of_texts, strict=True):
            hits[at] = replace(
                hits[at],
                source=passage.source,
                span=passage.span,
                metadata=passage.metadata,
                section=passage.section,
                pages=passage.pages,
                boxes=passage.boxes,
            )
        return hits

    def _passages_behind(self, rows: Rows) -> list[Rows]:
        """Return for each node the passages that it comes from, ascending."""
        owners, passages, _ = self._support.links(rows)
        return [passages[span] for span in slices(owners, len(rows))]

    def _about(self, row: int) -> str:
        """Return the surface of an attribute's entity, the only one it is linked to."""
        _, linked, _ = self.graph.links.links(np.array([row]))
        names = self.graph.rows("N")
        (entity,) = linked[(linked >= names.start) & (linked < names.stop)]
        return str(self._tables["N"].value(int(self._rows[entity]), "surface"))

    def _problem(self, tables: Mapping[str, int], vectors: Mapping[str, int]) -> str:
        """Describe nodes, table rows and vectors that do not match each other; empty if all match."""
        lengths = {**tables, "T": len(self._passages), "O": tables["H"]}
        for kind in KINDS:
            rows, length = self._rows[self.graph.rows(kind)], lengths[kind]
            if (rows >= length).any() or len(np.unique(rows)) < len(rows) or (kind != "N" and len(rows) < length):
                return f"{len(rows)} nodes {kind} for {length} rows"
            if vectors.get(kind, length) != length:
                return f"{vectors[kind]} vectors of nodes {kind} for {length} rows"
        names = len(self.graph) - self.graph.rows("N").start
        if (len(self.names), len(self.words.starts) - 1) != (self.graph.offsets[6] - self.graph.offsets[5], names):
            return f"{len(self.words.starts) - 1} names for {names} nodes"
        return ""


def relation_text(source: str, wording: str, target: str) -> str:
    """Return the text of a relation, read from its source to its target, with the displayed names of both."""
    joint = "" if wording.startswith(("'", "’")) else " "
    return f"{source}{joint}{wording} {target}"


def heterograph_of(artifacts: Artifacts) -> HeterographNodes:
    """Open a snapshot's heterograph, once. Raises FamilyNotFound, CorruptBlob if arrays and tables do not match."""
    return artifacts.once(_HETEROGRAPH, lambda: HeterographNodes(artifacts))
