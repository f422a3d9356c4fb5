"""What a question names, for zoom_graph: its entities, and its vector without them.

Linking is tri_graph's (``docs/families.md``): words against canonical names, unknown names by the nearest vector.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from indexmill.names import NameIndex
from indexmill.retrieve.base import Encode, Vectors
from indexmill.retrieve.matrices import Matrices, Sparse
from indexmill.retrieve.tri_graph import Link, TriGraph, TriGraphParameters, _projection, _residual

__all__ = ["Named", "QuestionNames"]


@dataclass(frozen=True, slots=True)
class Named:
    """The entities that a question names, and the part of its vector that lies in the span of their names'."""

    links: tuple[Link, ...]
    part: npt.NDArray[np.float64] | None

    def open_question(self, vector: Vectors, share: float) -> Vectors:
        """The unit vector of the question without a share of what it names."""
        return _residual(vector, self.part, share)


@dataclass(frozen=True, slots=True)
class QuestionNames:
    """Finds what questions name.

    mentions, mentioned_in: sentences by entities and back; contained_in: entities by documents. name_vectors: unit
    rows of the entities ``name_rows``, ascending (None: of all). nearest_name: least similarity at which a name that
    no entity has stands for the nearest one.
    """

    names: NameIndex
    mentions: Sparse
    mentioned_in: Sparse
    contained_in: Sparse
    name_vectors: Sequence[Vectors] = ()
    name_rows: npt.NDArray[np.integer] | None = None
    nearest_name: float = 0.7
    _graph: TriGraph = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        nothing = np.empty(0, dtype=np.int64)
        graph = TriGraph(
            (),
            (),
            Matrices(self.mentions, self.mentioned_in, self.contained_in, self.contained_in, nothing),
            self.names,
            name_vectors=self.name_vectors,
            name_rows=self.name_rows,
            parameters=TriGraphParameters(nearest_name=self.nearest_name),
        )
        object.__setattr__(self, "_graph", graph)

    def find(self, questions: Sequence[str], vectors: Vectors, encode: Encode | None) -> list[Named]:
        """What each question names; encode gives the vectors of names that no entity has."""
        linked = self._graph._link(questions)
        if encode is not None and self.name_vectors:
            linked = self._graph._link_nearest(questions, linked, encode)
        return [
            Named(links, _projection(vector, self._graph._span(links)) if links else None)
            for links, vector in zip(linked, vectors, strict=True)
        ]
