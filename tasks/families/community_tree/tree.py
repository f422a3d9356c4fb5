"""Stage `community_tree`: entities and communities as the rows of one tree, and C-HNSW over them (ArchRAG, 3.1).

Rows are numbered level by level: entities in the order of the tables `described/<e>`, then communities in the order of
their tables `communities/<g>`, level 1 first. Packs: `tree` and `index` (indexmill.families.community_tree.schema).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from indexmill.families.community_tree.schema import INDEX, TREE
from indexmill.retrieve.matrices import pointers
from tasks.core.communities.graph import Floats, Labels
from tasks.core.communities.measures import calinski_harabasz, cosine_to_centre
from tasks.core.layers import TreeRows
from tasks.core.stage import Input, Output, Outputs, Part, Stage, StageSettings, shared_tables
from tasks.families.community_tree.chnsw import ChnswLevel, ChnswSettings, build_chnsw
from tasks.families.community_tree.graph import LETTERS
from tasks.families.community_tree.level_links import ChnswLinkSettings
from tasks.families.community_tree.tables import COMMUNITIES, COMMUNITY_MEMBERS
from tasks.stages.embed.embed import TEXT_VECTORS
from tasks.stages.resolve.entity_ranges import entity_keys
from tasks.stages.resolve.name_counts import SUBJECT_KINDS

Array = NDArray[Any]


def counts(pack: Mapping[str, Array]) -> dict[str, int]:
    """Return the sizes of a built tree, as the manifest states them."""
    sizes = np.diff(pack["level_offsets"]).tolist()
    return {
        "entities": sizes[0],
        "levels": len(sizes) - 1,
        "communities": sum(sizes[1:]),
        **{f"level_{level}": size for level, size in enumerate(sizes) if level},
        "roots": int(np.count_nonzero(pack["parents"] < 0)),
        "relations": len(pack["relations.rows"]) // 2,
        "stand_ins": int(pack["stand_ins"].sum()),
    }


@dataclass(frozen=True, kw_only=True)
class CommunityTreeStageSettings(StageSettings):
    """The maximum ``levels``, the minimum number of nodes to cluster (``fewest``), and of links per node (``m``)."""

    levels: int
    fewest: int
    m: int
    dimension: int


def _compute(part: Part[CommunityTreeStageSettings]) -> Outputs:
    settings = part.settings
    entities = part.tables("described", "entity_id")["entity_id"].combine_chunks()
    levels = [ChnswLevel(entities.to_pylist(), _vectors(part, "description_vectors"))]
    rows, quality = TreeRows(entities), []
    for letter in LETTERS[: len({label[0] for label in part.labels("communities")})]:
        communities = part.tables("communities", "community_id", "stand_in", within=letter)
        members = part.tables("community_members", "community_id", "member_id", within=letter)
        quality.append(_quality(levels[-1].vectors, rows.add(communities, members)))
        levels.append(ChnswLevel(communities["community_id"].to_pylist(), _vectors(part, "community_vectors", letter)))
    tree: dict[str, Array] = {
        **rows.arrays(),
        **_passages(part, entities),
        **_relations(part, entities),
        "level_offsets": np.array(rows.offsets, dtype=np.int64),
        "entity_keys": entity_keys(entities),
        "quality": np.array(quality, dtype=np.float64).reshape(-1, 2),
        "bounds": np.array([settings.levels, settings.fewest, settings.m], dtype=np.int64),
    }
    built = build_chnsw(levels, _chnsw_settings(settings.m))
    places = np.repeat(np.array(rows.offsets[:-1], dtype=np.int64), np.diff(rows.offsets)) + built.sources
    return Outputs(packs={"tree": tree, "index": {**built.index.arrays(), "rows": places}})


def _chnsw_settings(least: int) -> ChnswSettings:
    standard = ChnswLinkSettings()
    candidates, far = max(standard.candidates, least), min(standard.far, least)
    return ChnswSettings(links=ChnswLinkSettings(least=least, candidates=candidates, far=far))


def _vectors(part: Part[CommunityTreeStageSettings], name: str, letter: str = "") -> Floats:
    """Return the vectors (n, d) of a level."""
    packs = part.packs(name, within=letter)
    return np.concatenate(
        [np.empty((0, part.settings.dimension), dtype=np.float32), *(pack["vectors"] for pack in packs)]
    )


def _quality(vectors: Floats, labels: Labels) -> tuple[float, float]:
    """Return CHI and Sim of a level's communities, to six digits: later digits depend on the order of summation."""
    both = calinski_harabasz(vectors, labels), cosine_to_centre(vectors, labels)
    chi, sim = (float("nan") if one is None else float(f"{one:.6g}") for one in both)
    return chi, sim


def _passages(part: Part[CommunityTreeStageSettings], entities: pa.Array) -> dict[str, Array]:
    """Return the passages that each entity was extracted from; a flag per passage is set if it is about the entity."""
    passages = part.tables("passages", "passage_id")["passage_id"].combine_chunks()
    extracted = part.tables("extracted", "entity_id", "passage_id")
    owner = pc.index_in(extracted["entity_id"], entities).to_numpy()
    passage = pc.index_in(extracted["passage_id"], passages).to_numpy()
    order = np.lexsort((passage, owner))
    owner, passage = owner[order].astype(np.int64), passage[order].astype(np.int64)
    subject, where = _subjects(part, entities, passages)
    about = np.isin(owner * len(passages) + passage, subject * len(passages) + where)
    return {
        "passages.indptr": pointers(owner, len(entities)),
        "passages.indices": passage.astype(np.int32),
        "passages.about": about.astype(np.uint8),
    }


def _subjects(part: Part[CommunityTreeStageSettings], entities: pa.Array, passages: pa.Array) -> tuple[Array, Array]:
    """Return pairs of an entity and a passage about it, as row numbers.

    A passage is about the entities with a mention of one of SUBJECT_KINDS, and about the first name in its first
    sentence: even without an informative title, texts begin with their subject.
    """
    mentions = part.tables("mentions", "entity_id", "passage_id", "kind", "sentence", "start", "end")
    entity, passage = (
        pc.index_in(mentions[name], ids).fill_null(-1).to_numpy().astype(np.int64)
        for name, ids in (("entity_id", entities), ("passage_id", passages))
    )
    (titled,) = (pc.is_in(mentions["kind"], pa.array(SUBJECT_KINDS)).to_numpy() & (entity >= 0)).nonzero()
    (opening,) = ((mentions["sentence"].to_numpy() == 0) & (entity >= 0)).nonzero()
    start, end = (mentions[name].to_numpy()[opening] for name in ("start", "end"))
    opening = opening[np.lexsort((entity[opening], -end, start, passage[opening]))]
    _, first = np.unique(passage[opening], return_index=True)
    chosen = np.concatenate([titled, opening[first]])
    return entity[chosen], passage[chosen]


def _relations(part: Part[CommunityTreeStageSettings], entities: pa.Array) -> dict[str, Array]:
    """Return the related entities of each entity, in both directions, with the row of `related` for each pair."""
    related = part.tables("related", "source", "target")
    ends = [pc.index_in(related[name], entities).to_numpy() for name in ("source", "target")]
    owner, partner = np.concatenate(ends), np.concatenate(ends[::-1])
    row = np.tile(np.arange(len(related)), 2)
    order = np.lexsort((row, partner, owner))
    return {
        "relations.indptr": pointers(owner, len(entities)),
        "relations.indices": partner[order].astype(np.int32),
        "relations.rows": row[order].astype(np.int32),
    }


STAGE = Stage(
    "community_tree",
    version=3,
    compute=_compute,
    libraries=("numpy",),
    expensive=True,
    inputs=(
        *shared_tables("described", "related", "passages", "mentions", "extracted", each=True),
        Input("description_vectors", TEXT_VECTORS, each=True),
        Input("communities", COMMUNITIES, each=True),
        Input("community_vectors", TEXT_VECTORS, each=True),
        Input("community_members", COMMUNITY_MEMBERS, each=True),
    ),
    outputs=(
        Output("tree", TREE, artifact="community_tree/tree"),
        Output("index", INDEX, artifact="community_tree/index"),
    ),
)
