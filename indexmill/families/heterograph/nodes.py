"""The nodes of a snapshot's heterograph by row: what turns the nodes that a question is given into hits.

A row is a node's place in the pack ``heterograph/graph``, kind after kind. Its ``rows`` say where the node lies in the
tables of its kind, one shard after the other: passages, units, attributes, elements, ``heterograph/relations``,
entities, and elements again for their overviews.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice, pairwise, repeat
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from indexmill.errors import CorruptBlob, FamilyNotFound
from indexmill.families.heterograph.name_words import NameWords
from indexmill.families.heterograph.search import KINDS, Heterograph
from indexmill.hits import Hit
from indexmill.retrieve.base import Allowed, Explanations, Vectors
from indexmill.retrieve.columns import Pairs, paired, parts, products
from indexmill.retrieve.dense import nearest
from indexmill.retrieve.matrices import Integers, Rows, Scores, Sparse
from indexmill.retrieve.opened import arrays_of
from indexmill.retrieve.passages import passages_of
from indexmill.retrieve.rows import Rows as TableRows
from indexmill.text.names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

__all__ = ["GRAPH", "NAMES", "SHOWN", "HeterographNodes", "NodeLabel", "heterograph_of"]

GRAPH = "heterograph/graph"
"""The artifact that holds the graph."""

NAMES = "heterograph/names"
"""The artifact that holds the words of names and overviews."""

SHOWN = {
    "T": "text",
    "S": "unit",
    "A": "attribute",
    "H": "high-level",
    "R": "relation",
    "N": "entity",
    "O": "overview",
}
"""The kinds of nodes as hits and explanations name them; the last two are in explanations alone."""

_VECTORS = {"S": "unit_vectors", "A": "attribute_vectors", "H": "element_vectors"}

_OF_GRAPH = (
    *("offsets", "links.indptr", "links.indices", "passages.indptr", "passages.indices"),
    *("rows", "entity_keys", "relation_tokens"),
)
_OF_NAMES = ("keys", "holders.indptr", "holders.indices", "starts", "words")


class NodeLabel(NamedTuple):
    """What is said of a node where it is named: its id, its title, and its text.

    The title of a text or a unit is its document's, that of an attribute the entity that it is of; a relation has none.
    An entity or an overview has no text.
    """

    id: str
    title: str
    text: str


class HeterographNodes:
    """Rows of all nodes, the graph that they stand in, the words of its names, and the hits made of them.

    graph: without parameters. names: of entities by their canonical name, row i the i-th entity of the graph. words:
    of entities and overviews, in their order.

    Raises FamilyNotFound for a snapshot without the family, CorruptBlob where arrays are missing, or where they and the
    tables do not fit each other.
    """

    def __init__(self, artifacts: Artifacts) -> None:
        if "heterograph" not in artifacts.manifest.families:
            raise FamilyNotFound(f"{artifacts.path}: the snapshot does not hold 'heterograph', so it has no such nodes")
        self._version = artifacts.version
        self._passages = passages_of(artifacts)
        self._tables = {
            "S": TableRows(artifacts, "units", ["unit_id", "text"]),
            "A": TableRows(artifacts, "attributes", ["attribute_id", "entity_id", "text", "tokens", "stand_in"]),
            "H": TableRows(artifacts, "elements", ["element_id", "overview_id", "title", "text", "tokens", "stand_in"]),
            "R": TableRows(artifacts, "heterograph/relations", ["node_id", "said"]),
            "N": TableRows(artifacts, "entities", ["entity_id", "surface"]),
        }
        arrays, names = (arrays_of(artifacts, *one) for one in ((GRAPH, _OF_GRAPH), (NAMES, _OF_NAMES)))
        try:
            self.graph = Heterograph.of(arrays)
        except (ValueError, IndexError) as error:
            raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} does not hold a graph: {error}") from error
        self._support = Sparse(arrays["passages.indptr"], arrays["passages.indices"])
        self.names, self.words = NameIndex(arrays["entity_keys"]), NameWords.of(names)
        self._rows = arrays["rows"]
        self._relation_tokens = arrays["relation_tokens"]
        self._vectors = [
            shard for kind, pack in _VECTORS.items() for shard in _vectors(artifacts, pack, self._tables[kind])
        ]
        self._passage_vectors = artifacts.vectors("vectors", "passages")
        self._units = artifacts.vectors("unit_vectors", "vectors")
        self._unit_tokens = artifacts.vectors("unit_vectors", "tokens")
        self.name_vectors = artifacts.vectors("names", "vectors")
        """The vectors of names, one shard after the other; none in a snapshot without a family that needs them."""
        self._check(artifacts)
        self._nodes = self._inverse(artifacts)
        self._named = self._name_rows(artifacts, arrays["entity_keys"])
        units = self.graph.rows("S")
        said = self._support.indices.take(self._support.indptr[units].astype(np.int64))
        self.said_by = self.of_passages(said.astype(np.int64))
        """The text that says each unit, in the order of units."""

    def __len__(self) -> int:
        return len(self.graph)

    # Finding nodes

    def nearest(self, questions: Vectors, k: int, allowed: Allowed | None = None) -> list[tuple[Rows, Scores]]:
        """The k units, attributes and high-level elements nearest to each question, and their cosines.

        questions: ``(n_questions, d) float32``. allowed: ``(n_nodes,)``, which nodes may be found; None for all. Exact;
        of equal ones the first in the order of the tables.
        """
        if not k:
            return [(np.empty(0, np.int64), np.empty(0))] * len(questions)
        nodes = self._nodes[self.graph.offsets[1] :]
        found = nearest(self._vectors, questions, k, None if allowed is None else allowed[nodes])
        return [(nodes[rows].astype(np.int64), cosines.astype(np.float64)) for rows, cosines in found]

    def enterable(self, allowed: Allowed) -> Allowed:
        """Which entities and overviews may be entered where some nodes take no part: those that lead to one that does.

        allowed: ``(n_nodes,)``. The answer is parallel to ``words``: ``(n_names,)``.
        """
        names, links = self.graph.rows("N", "O"), self.graph.links
        leads = allowed.copy()
        leads[names] = False
        bounds = links.indptr[names.start : names.stop + 1].astype(np.int64)
        held = np.concatenate([[0], np.cumsum(leads[links.indices[bounds[0] : bounds[-1]]], dtype=np.int64)])
        found: Allowed = allowed[names] & (np.diff(held[bounds - bounds[0]]) > 0)
        return found

    def of_passages(self, passages: Rows) -> Rows:
        """The texts of some passages, by their rows."""
        return self._nodes[passages].astype(np.int64)

    def passages_of(self, texts: Rows) -> Rows:
        """The passages, by their rows, of some texts."""
        return self._rows[texts].astype(np.int64)

    # What ways into the graph weigh

    def name_rows(self, entities: Rows) -> Rows:
        """Where the vector of the name of each of some entities stands in ``name_vectors``, -1 where it has none."""
        found: Rows = self._named[entities - self.graph.rows("N").start]
        return found

    def texts_of(self, units: Rows) -> Rows:
        """The text that says each of some units."""
        found: Rows = self.said_by[units - self.graph.rows("S").start]
        return found

    def unit_cosines(self, pairs: Pairs, vectors: Vectors) -> Scores:
        """The cosines of some pairs of a vector, of ``(n_vectors, d)``, and a unit."""
        return self._cosines(self._units, pairs, vectors)

    def text_cosines(self, pairs: Pairs, vectors: Vectors) -> Scores:
        """The cosines of some pairs of a vector, of ``(n_vectors, d)``, and a text."""
        return self._cosines(self._passage_vectors, pairs, vectors)

    def _cosines(self, shards: Sequence[Vectors], pairs: Pairs, vectors: Vectors) -> Scores:
        owners, rows = parts(pairs)
        return products(shards, vectors, paired(owners, self._rows[rows].astype(np.int64))).astype(np.float64)

    # What is said of them

    def told(self, row: int) -> NodeLabel:
        """The id, title and text of one node."""
        (kind,) = self.graph.kinds(np.array([row]))
        (passages,) = self._come_from(np.array([row])) if kind == "S" else (np.empty(0, dtype=np.int64),)
        return self._told(row, kind, passages)

    def _told(self, row: int, kind: str, passages: Rows) -> NodeLabel:
        """The same, of a node of a kind. passages: those that it comes from."""
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
            return NodeLabel(table.value(place, "node_id"), "", table.value(place, "said"))
        return NodeLabel(table.value(place, "entity_id"), table.value(place, "surface"), "")

    def tokens(self, row: int) -> int:
        """The tokens of one node's text; of a relation's, an estimate."""
        return self._tokens(row, *self.graph.kinds(np.array([row])))

    def _tokens(self, row: int, kind: str) -> int:
        """The same, of a node of a kind."""
        place = int(self._rows[row])
        if kind == "T":
            return self._passages.tokens(place)
        if kind == "R":
            return int(self._relation_tokens[row - self.graph.rows("R").start])
        if kind == "S":
            number, at = self._tables["S"].locate(place)
            return int(self._unit_tokens[number][at])
        return int(self._tables[kind].value(place, "tokens"))

    def hits(
        self, rows: Rows, scores: Scores, explanations: Explanations = None, allowed: Allowed | None = None
    ) -> list[Hit]:
        """Nodes as hits; to the explanation of each come the ids of the passages that it comes from.

        allowed: the passages that take part; the others are not named.
        """
        found = []
        come_from = self._come_from(rows)
        named = come_from if allowed is None else [passages[allowed[passages]] for passages in come_from]
        every = np.concatenate([np.empty(0, dtype=np.int64), *named])
        documents = iter(self._passages.documents_of(every))
        ids = iter([] if explanations is None else self._passages.ids(every))
        reasons = repeat(None, len(rows)) if explanations is None else explanations
        its = zip(
            rows.tolist(), self.graph.kinds(rows), come_from, map(len, named), scores.tolist(), reasons, strict=True
        )
        for row, kind, passages, count, score, reason in its:
            told = self._told(row, kind, passages)
            explanation = None
            if reason is not None:
                explanation = {**reason, "passages": list(islice(ids, count))}
                if kind in ("A", "H") and self._tables[kind].value(int(self._rows[row]), "stand_in"):
                    explanation["stand_in"] = True
            hit = Hit(
                kind=SHOWN[kind],
                id=told.id,
                score=score,
                text=told.text,
                title=told.title,
                document_ids=tuple(sorted(set(islice(documents, count)))),
                tokens=self._tokens(row, kind),
                version=self._version,
                explanation=explanation,
            )
            found.append(hit)
        return found

    def _come_from(self, rows: Rows) -> list[Rows]:
        """The passages that each of some nodes comes from, ascending."""
        owners, passages, _ = self._support.links(rows)
        cuts = owners.searchsorted(np.arange(len(rows) + 1)).tolist()
        return [passages[first:end] for first, end in pairwise(cuts)]

    def _about(self, row: int) -> str:
        """The surface of the entity that an attribute is of: it is linked to no other."""
        _, linked, _ = self.graph.links.links(np.array([row]))
        names = self.graph.rows("N")
        (entity,) = linked[(linked >= names.start) & (linked < names.stop)]
        return str(self._tables["N"].value(int(self._rows[entity]), "surface"))

    # Opening

    def _check(self, artifacts: Artifacts) -> None:
        """Raise CorruptBlob where the arrays do not fit each other or the tables."""
        graph, words = self.graph, self.words
        sizes = dict(zip(KINDS, np.diff(graph.offsets).tolist(), strict=True))
        tables = {kind: len(table) for kind, table in self._tables.items()} | {"T": len(self._passages)}
        for kind, held in tables.items():
            if sizes[kind] != held if kind != "N" else sizes[kind] > held:
                raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} has {sizes[kind]} nodes {kind}; the tables have {held}")
        named = sizes["N"] + sizes["O"]
        if [len(shard) for shard in self._unit_tokens] != np.diff(self._tables["S"].starts).tolist():
            raise CorruptBlob(f"{artifacts.path}: 'unit_vectors' does not say how many tokens each unit has")
        fits = (
            len(self._rows) == len(graph)
            and len(self._relation_tokens) == sizes["R"]
            and len(self.names) == sizes["N"]
            and all(_below(self._rows[graph.rows(kind)], tables["H" if kind == "O" else kind]) for kind in KINDS)
            and _pointers_fit(graph.links, len(graph), len(graph))
            and _pointers_fit(self._support, int(graph.offsets[5]), len(self._passages))
        )
        if not fits:
            raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} holds arrays that do not fit each other")
        fits = (
            len(words.starts) == named + 1
            and words.starts[0] == 0
            and words.starts[-1] == len(words.words)
            and _below(words.words, len(words.keys))
            and _pointers_fit(words.holders, len(words.keys), named)
        )
        if not fits:
            raise CorruptBlob(f"{artifacts.path}: {NAMES!r} does not hold the words of the names of {GRAPH!r}")
        attributes, entities = graph.rows("A"), graph.rows("N")
        owners, linked, _ = graph.links.links(np.arange(attributes.start, attributes.stop))
        about = np.bincount(owners[(linked >= entities.start) & (linked < entities.stop)], minlength=sizes["A"])
        if (about != 1).any():
            raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} has attributes that are not of one entity")

    def _name_rows(self, artifacts: Artifacts, keys: npt.NDArray[np.uint64]) -> Rows:
        """For each entity the row of its name in ``name_vectors``, -1 where it has none."""
        found = np.full(len(keys), -1, dtype=np.int64)
        owners = np.concatenate([np.empty(0, dtype=np.uint64), *artifacts.vectors("names", "entity_keys")])
        if len(owners) != sum(map(len, self.name_vectors)):
            raise CorruptBlob(f"{artifacts.path}: 'names' does not say of which entity each vector is")
        order = owners.argsort()
        at = np.minimum(owners[order].searchsorted(keys), max(len(owners) - 1, 0))
        if len(owners):
            has = owners[order[at]] == keys
            found[has] = order[at[has]]
        return found

    def _inverse(self, artifacts: Artifacts) -> npt.NDArray[np.int32]:
        """The node of each row of the tables of texts, units, attributes and elements, kind after kind."""
        upto = int(self.graph.offsets[4])
        found = np.full(upto, -1, dtype=np.int32)
        for kind in KINDS[:4]:
            own = self.graph.rows(kind)
            found[own.start + self._rows[own].astype(np.int64)] = np.arange(own.start, own.stop, dtype=np.int32)
        if (found < 0).any():
            raise CorruptBlob(f"{artifacts.path}: {GRAPH!r} has two nodes for one row of a table")
        return found


def heterograph_of(artifacts: Artifacts) -> HeterographNodes:
    """The heterograph of a snapshot and its nodes, opened once.

    Raises FamilyNotFound where there is none, CorruptBlob where its arrays and tables do not fit each other.
    """
    return artifacts.once("heterograph", lambda: HeterographNodes(artifacts))


def _vectors(artifacts: Artifacts, name: str, table: TableRows) -> list[Vectors]:
    """The vectors of a table's rows, shard by shard."""
    shards = artifacts.vectors(name, "vectors")
    rows = np.diff(table.starts).tolist()
    if [len(shard) for shard in shards] != rows:
        raise CorruptBlob(
            f"{artifacts.path}: {name!r} has {sum(map(len, shards))} vectors; the tables have {sum(rows)}"
        )
    if strange := sorted({shard.shape[1] for shard in shards} - {artifacts.dimensions}):
        raise CorruptBlob(
            f"{artifacts.path}: {name!r} has {strange[0]} dimensions; passages have {artifacts.dimensions}"
        )
    return shards


def _pointers_fit(links: Sparse, rows: int, columns: int) -> bool:
    fits = len(links) == rows and links.indptr[0] == 0 and links.indptr[-1] == len(links.indices)
    return bool(fits) and bool((np.diff(links.indptr) >= 0).all()) and _below(links.indices, columns)


def _below(rows: Integers, bound: int) -> bool:
    """Whether all rows are those of something of this length."""
    return not len(rows) or (int(rows.min()) >= 0 and int(rows.max()) < bound)
