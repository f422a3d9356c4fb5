"""The names of community_tree's entities in a question, and the question's vector without these names."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from indexmill.retrieve.columns import positions
from indexmill.retrieve.entity_names import Keys, name_vectors_of
from indexmill.retrieve.linking import Links, link_columns, link_known, link_named
from indexmill.retrieve.residual_query import named_parts, without
from indexmill.retrieve.retrieval_method import Allowed, QueryBatch, Vectors
from indexmill.text.canonical_names import NameIndex

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


@dataclass(frozen=True)
class EntityNames:
    """The names of entities, by row.

    keys: ``(n_entities,)``, ascending, the first digits of each entity's id. index: finds an entity's row by canonical
    name. vectors: shards ``(n, d) float32`` with the vectors of the names that have one. owners: ``(n,)``, ascending,
    the key of each vector's entity.
    """

    keys: Keys
    index: NameIndex
    vectors: Sequence[Vectors]
    owners: Keys

    @classmethod
    def of(cls, artifacts: Artifacts, keys: Keys) -> EntityNames:
        """Open the names of a snapshot's entities, given their keys."""
        return cls(keys, NameIndex(keys), *name_vectors_of(artifacts))

    def links(self, batch: QueryBatch, named: Allowed | None = None) -> list[Links]:
        """Link each question to the entities that it names. named: a mask of linkable entities; None for all."""
        if "links of entities" not in batch.shared:
            counts = _every if named is None else lambda rows: named[rows]
            linked = link_known(batch.questions, self.index, counts)
            if batch.names:
                linked = link_named(batch.names, linked, self.index, counts)
            batch.shared["links of entities"] = linked
        links: list[Links] = batch.shared["links of entities"]
        return links

    def residual(self, vectors: Vectors, linked: Sequence[Links]) -> Vectors:
        """Remove from each question's vector its projection onto the vectors of the names in it."""
        questions, rows, _ = link_columns(linked)
        places, has_vector = positions(self.keys[rows], self.owners)
        if not has_vector.any():
            return vectors
        return without(vectors, named_parts(vectors, self.vectors, questions[has_vector], places[has_vector]), 1.0)


def _every(rows: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return np.ones(len(rows), dtype=np.bool_)
