"""The tables of the family community_tree."""

import pyarrow as pa

from schemas.tables import private, published

COMMUNITIES = published(
    "communities/<group>",
    "the communities of community_tree, with their reports",
    community_id=pa.string(),
    level=(pa.int32(), "1 is the lowest"),
    title=pa.string(),
    text=(pa.string(), "the summary"),
    findings=pa.list_(pa.struct([pa.field("summary", pa.string()), pa.field("explanation", pa.string())])),
    rating=(pa.float32(), "the importance of the community, 0 to 10"),
    rating_explanation=pa.string(),
    members=(pa.int32(), "the number of the community's members"),
    tokens=(pa.int32(), "the tokens of the embedded text: title, line feed, text"),
    digest=(pa.string(), "the digest of that text"),
    made_of=(pa.string(), "hash of the report's inputs: a report with the same hash is reused"),
    stand_in=(pa.bool_(), "no model wrote the report although one was asked"),
)
"""Ordered by community_id."""

COMMUNITY_MEMBERS = published(
    "community_members/<group>",
    "the members of communities",
    community_id=pa.string(),
    member_id=(pa.string(), "the id of an entity or, above the first level, of a community"),
    member_digest=(pa.string(), "the digest of the member's text"),
    shard=(pa.string(), "the shard or group that has the member's text"),
)
"""Ordered by (community_id, member_id)."""

COMMUNITY_RELATIONS = private(
    community_id=pa.string(),  # a community of the first level that contains both ends
    source=pa.string(),  # entity_id
    target=pa.string(),  # entity_id
    digest=pa.string(),  # the description's digest
    shard=pa.string(),  # the shard with the description
)
"""Ordered by (community_id, source, target); read only by the stage that writes the reports."""

COMMUNITY_SOURCES = private(
    community_id=pa.string(),
    source_id=pa.string(),  # a passage's id, or the `made_of` of a report that a model was asked for
)
"""The sources of each report, ordered by (community_id, source_id); read only by the community stages."""
