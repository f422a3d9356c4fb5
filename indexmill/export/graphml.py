"""Export of a graph as GraphML, which Gephi, Cytoscape, yEd, networkx and igraph read.

`document` writes any graph whose nodes and edges are tables: a column is an attribute. `graph` provides the entities of
a snapshot, their relations, and their communities.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol
from xml.sax.saxutils import quoteattr

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from indexmill.export.entity_graph import EntityGraph, pieces
from indexmill.retrieve.matrices import Rows
from indexmill.retrieve.method_registry import provided

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts

_NOT_IN_XML = "[\x00-\x08\x0b\x0c\x0e-\x1f\ufffe\uffff]"
_ESCAPES = (("&", "&amp;"), ("<", "&lt;"), (">", "&gt;"), ('"', "&quot;"), ("\r", "&#13;"))

_SPACES = (
    ("\t", "&#9;"),
    ("\n", "&#10;"),
)  # in an XML attribute parsers turn them into spaces


class CommunityHierarchy(Protocol):
    """The interface of a family that groups entities into numbered communities. Level 0 is the coarsest."""

    @property
    def depth(self) -> int:
        """The number of levels."""
        ...

    def of_entities(self, level: int | None = None) -> Rows:
        """Return the number of each entity's community on a level, by default the lowest; -1 if it has none."""
        ...

    def texts(self, *columns: str) -> Iterator[tuple[Rows, pa.Table]]:
        """Yield pieces of the communities, in order: their numbers and the given columns of their table."""
        ...


@dataclass(frozen=True)
class Elements:
    """The nodes or edges of a graph: a schema, and the rows in pieces.

    The first column of nodes is their id, and the first two columns of edges are the ids of their nodes, all strings.
    Every other column is an attribute: a string, an integer, a float or a boolean. Null, empty strings, NaN and
    infinities are omitted.
    """

    schema: pa.Schema
    pieces: Iterable[pa.Table]


def graph(artifacts: Artifacts) -> tuple[Elements, Elements]:
    """Return a snapshot's entities and relations. Raises FamilyNotFound if nothing was extracted, or CorruptBlob.

    If there are communities, ``community_<level>`` is the number of the entity's community on that level (0 is the
    coarsest, as in GraphRAG's tables), and ``community`` is the title of its community on the lowest level.
    """
    entities = EntityGraph(artifacts)
    hierarchy: CommunityHierarchy | None = provided(artifacts, "hierarchy")
    depth = 0 if hierarchy is None else hierarchy.depth
    nodes = pa.schema(
        {
            **dict.fromkeys(("id", "label", "type", "description"), pa.string()),
            **dict.fromkeys(("passages", "degree", *(f"community_{level}" for level in range(depth))), pa.int64()),
            **({} if hierarchy is None else {"community": pa.string()}),
        }
    )
    edges = pa.schema(
        {**dict.fromkeys(("source", "target", "label", "description"), pa.string()), "weight": pa.float64()}
    )
    return Elements(nodes, _nodes(artifacts, entities, hierarchy, nodes)), Elements(edges, _edges(artifacts, edges))


def _nodes(
    artifacts: Artifacts, entities: EntityGraph, hierarchy: CommunityHierarchy | None, schema: pa.Schema
) -> Iterator[pa.Table]:
    places = {}
    titles = pa.array([], pa.string())
    if hierarchy is not None:
        places = {f"community_{level}": hierarchy.of_entities(level) for level in range(hierarchy.depth)}
        titles = pa.concat_arrays(
            [titles, *(chunk for _, table in hierarchy.texts("title") for chunk in table["title"].chunks)]
        )
    for first, table in pieces(artifacts, "described", ["entity_id", "type", "description", "passages"]):
        rows = slice(first, first + len(table))
        columns = {
            "id": table["entity_id"],
            "label": entities.titles.slice(first, len(table)),
            "type": table["type"],
            "description": table["description"],
            "passages": table["passages"],
            "degree": entities.degrees[rows],
            **{name: _or_null(place[rows]) for name, place in places.items()},
        }
        if hierarchy is not None:
            columns["community"] = titles.take(_or_null(hierarchy.of_entities()[rows]))
        yield pa.table(columns).cast(schema)


def _edges(artifacts: Artifacts, schema: pa.Schema) -> Iterator[pa.Table]:
    names = ["source", "target", "kind", "description", "relations"]
    for _, table in pieces(artifacts, "related", names):
        yield table.select(names).rename_columns(schema.names).cast(schema)


def _or_null(numbers: np.ndarray) -> pa.Array:
    return pa.array(numbers, mask=numbers < 0)


def document(nodes: Elements, edges: Elements) -> Iterator[bytes]:
    """Yield a directed graph as a GraphML file, a piece at a time; the same rows give the same bytes.

    Characters that XML does not allow become U+FFFD. Raises ValueError for a column type that `Elements` excludes.
    """
    declared = [*_declared("node", nodes.schema, 1), *_declared("edge", edges.schema, 2)]
    head = ['<?xml version="1.0" encoding="UTF-8"?>', '<graphml xmlns="http://graphml.graphdrawing.org/xmlns">']
    yield _lines([*head, *declared, '<graph id="G" edgedefault="directed">'])
    for table in nodes.pieces:
        yield _lines(_rows("node", ("id",), table))
    for table in edges.pieces:
        yield _lines(_rows("edge", ("source", "target"), table))
    yield _lines(["</graph>", "</graphml>"])


def _declared(element: str, schema: pa.Schema, identifying: int) -> Iterator[str]:
    for name in schema.names[:identifying]:
        if not pa.types.is_string(schema.field(name).type):
            raise ValueError(f"the column {name!r} of {element}s is {schema.field(name).type}; expected string")
    for field in list(schema)[identifying:]:
        key, name = quoteattr(f"{element}.{field.name}"), quoteattr(field.name)
        yield f'<key id={key} for="{element}" attr.name={name} attr.type="{_type(field)}"/>'


def _type(field: pa.Field) -> str:
    for is_type, word in (
        (pa.types.is_string, "string"),
        (pa.types.is_boolean, "boolean"),
        (pa.types.is_integer, "long"),
        (pa.types.is_floating, "double"),
    ):
        if is_type(field.type):
            return word
    raise ValueError(f"the column {field.name!r} is {field.type}; GraphML has only strings, numbers and booleans")


def _rows(element: str, identifying: Sequence[str], table: pa.Table) -> list[str]:
    """Return each row of a table as one line of GraphML."""
    parts: list[pa.ChunkedArray | str] = [f"<{element}"]
    for name, column in zip(identifying, table.columns, strict=False):
        identity = _escaped(column)
        for character, escape in _SPACES:
            identity = pc.replace_substring(identity, character, escape)
        parts += [f' {name}="', identity, '"']
    parts.append(">")
    for name, column in list(zip(table.column_names, table.columns, strict=True))[len(identifying) :]:
        text = _escaped(column)
        data = pc.binary_join_element_wise(f"<data key={quoteattr(f'{element}.{name}')}>", text, "</data>", "")
        parts.append(pc.if_else(pc.fill_null(pc.not_equal(text, ""), False), data, ""))
    parts.append(f"</{element}>")
    lines: list[str] = pc.binary_join_element_wise(*parts, "").to_pylist()
    return lines


def _escaped(column: pa.ChunkedArray) -> pa.ChunkedArray:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, None)
    text = column.cast(pa.string())
    for character, escape in _ESCAPES:
        text = pc.replace_substring(text, character, escape)
    return pc.replace_substring_regex(text, _NOT_IN_XML, "\ufffd")


def _lines(lines: Iterable[str]) -> bytes:
    return "".join(f"{line}\n" for line in lines).encode()
