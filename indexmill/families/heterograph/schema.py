"""The packs of the family heterograph: the graph, the vectors of its texts, and the words of its names (NodeRAG)."""

from __future__ import annotations

from indexmill.store.pack_schema import Array, PackSchema, hashes, indices, keys, pointers, vectors


def _vectors(table: str) -> dict[str, Array]:
    return {
        "vectors": vectors(f"own {table}", "the vector of each text"),
        "text_keys": hashes(f"own {table}", "what each vector was computed from"),
    }


UNIT_VECTORS = PackSchema(
    "vectors of units, one per row of `units`",
    {**_vectors("units"), "tokens": Array("int32", ("own units",), "the number of each text's tokens", least=0)},
    tables=("own units",),
)
ATTRIBUTE_VECTORS = PackSchema(
    "vectors of attributes, one per row of `attributes`", _vectors("attributes"), tables=("own attributes",)
)
ELEMENT_VECTORS = PackSchema(
    "vectors of high-level elements, one per row of `elements`", _vectors("elements"), tables=("own elements",)
)

GRAPH = PackSchema(
    "the graph; its rows are nodes in the order of `heterograph/nodes`",
    {
        "offsets": pointers("kinds", "nodes", "where each kind of nodes begins, and the end: 8 numbers"),
        "links.indptr": pointers("nodes", "links", "where the links of each node begin, and the end"),
        "links.indices": indices("links", "nodes", "every edge in the rows of both ends, ascending"),
        "links.kinds": Array(
            "uint8",
            ("links",),
            "the kind of each edge: its position in the order of `heterograph/edges`",
            below=10,
            least=0,
        ),
        "passages.indptr": pointers(
            "supported", "support", "where the passages that each of T, S, A, H and R comes from begin, and the end"
        ),
        "passages.indices": indices("support", "passages", "rows of passages"),
        "rows": Array(
            "int32",
            ("nodes",),
            "the row of each node in the tables of the kind: passages, units, attributes, elements, "
            "`heterograph/relations`, entities, elements",
            least=0,
        ),
        "entity_keys": keys("entity nodes", "the first 16 digits of the id of each entity that is a node"),
        "edges": Array("int64", ("kinds of edges",), "how many edges of each kind there are: 10 numbers", least=0),
        "relation_tokens": Array(
            "int32", ("heterograph/relations",), "the number of tokens of each relation, estimated from bytes", least=0
        ),
        "stand_ins": Array(
            "int64", (2,), "the attributes and the elements that a model was asked for but did not write", least=0
        ),
    },
    tables=("passages", "heterograph/relations"),
)

NAMES = PackSchema(
    "the words of the names of N and then of the titles of O, in their order",
    {
        "keys": keys("words", "the keys of the words, as of terms in lexical retrieval"),
        "holders.indptr": pointers("words", "holders", "where the names that contain each word begin, and the end"),
        "holders.indices": indices("holders", "names", "the names that contain a word, ascending"),
        "starts": pointers("names", "words of names", "where the words of each name begin, and the end"),
        "words": indices("words of names", "words", "the words of each name in turn, as positions in `keys`"),
    },
)

PACKS = {
    "unit_vectors/<shard>": UNIT_VECTORS,
    "attribute_vectors/<entity shard>": ATTRIBUTE_VECTORS,
    "element_vectors/<group>": ELEMENT_VECTORS,
    "heterograph/graph": GRAPH,
    "heterograph/names": NAMES,
}
