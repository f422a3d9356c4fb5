"""The tables of the family heterograph."""

import pyarrow as pa

from schemas.tables import private, published

HETERO_NODES = published(
    "heterograph/nodes",
    "the nodes of the graph, by kind in this order, then by id; every id is unique",
    node_id=pa.string(),
    kind=(
        pa.string(),
        (
            "`T`, a passage; `S`, a unit; `A`, an attribute; `H`, a high-level element; `R`, a relation; `N`, an "
            "entity; `O`, an overview"
        ),
    ),
)

HETERO_EDGES = published(
    "heterograph/edges",
    "the edges of the graph, by kind in this order, then by their ends in the order of nodes; "
    "no two nodes are linked twice",
    source=(pa.string(), "node_id"),
    target=(pa.string(), "node_id"),
    kind=(
        pa.string(),
        (
            "`mention` (S to N), `source` (N to R), `target` (R to N), `same_as` (N, N), `attribute` (N to A), "
            "`overview` (H to O), `text` (T to S), `match` (S or A to H), `near` (T, S, A, H), `subject` (S to N)"
        ),
    ),
    weight=(pa.float32(), "1"),
)

HETERO_RELATIONS = published(
    "heterograph/relations",
    "the relation nodes; relations with the same wording between the same entities share a node",
    node_id=pa.string(),
    source=(pa.string(), "entity_id"),
    target=(pa.string(), "entity_id"),
    text=(pa.string(), "the wording, read from source to target"),
    said=(pa.string(), "the whole text: the displayed names of both ends, with the wording between them"),
)
"""Ordered by node_id."""

HETERO_ATTRIBUTES = published(
    "attributes/<entity shard>",
    "the attributes of heterograph: texts about important entities",
    attribute_id=pa.string(),
    entity_id=pa.string(),
    text=pa.string(),
    tokens=(pa.int32(), "the tokens of the text, special tokens included"),
    digest=(pa.string(), "the digest of the text"),
    made_of=(pa.string(), "hash of the attribute's inputs: an attribute with the same hash is reused"),
    stand_in=(pa.bool_(), "no model wrote the text although one was asked"),
)
"""Ordered by attribute_id."""

HETERO_ELEMENTS = published(
    "elements/<group>",
    "the high-level elements of heterograph, with their overviews",
    element_id=pa.string(),
    overview_id=pa.string(),
    community_id=pa.string(),
    title=(pa.string(), "the overview"),
    text=pa.string(),
    tokens=(pa.int32(), "the tokens of the text, special tokens included"),
    digest=(pa.string(), "the digest of the text"),
    made_of=(pa.string(), "hash of the inputs of the community's elements"),
    stand_in=(pa.bool_(), "no model wrote the text although one was asked"),
)
"""High-level elements with their overviews, ordered by element_id."""

HETERO_COMMUNITIES = private(node_id=pa.string(), community_id=pa.string())
"""Ordered by node_id."""

HETERO_READ = private(
    owner=pa.string(),  # entity_id, or community_id
    node_id=pa.string(),
    kind=pa.string(),  # the node's kind
    digest=pa.string(),  # the digest of the node's text: tasks.stages.embed.embed.row_key, 32 hex digits
    text=pa.string(),
)
"""The nodes that are read for a text, ordered by owner, then by kind in the order of KINDS and node_id."""

HETERO_MADE = private(
    owner=pa.string(),
    shown=pa.string(),  # an entity's name, or the names named most often in a community
    made_of=pa.string(),  # hash of the text's inputs: a text with the same hash is reused
    nodes=pa.int32(),  # the number of nodes that are read
    tokens=pa.int64(),  # the tokens of their texts
)
"""Ordered by owner."""

HETERO_SOURCES = private(
    owner=pa.string(),
    source_id=pa.string(),  # a passage's id, or the `made_of` of an attribute that a model was asked for
)
"""The sources of a text, ordered by (owner, source_id); read only by the stages that ask a model for it."""
