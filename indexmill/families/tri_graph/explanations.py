"""Explanations of tri_graph: entities, and the sentences that bridged to them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from indexmill.families.tri_graph.activation import Activated, joined
from indexmill.families.tri_graph.search import Retrieved
from indexmill.retrieve.columns import distinct, first_of_each, matches, paired, parts
from indexmill.retrieve.entity_labels import entity_labels_of
from indexmill.retrieve.matrices import Sparse
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import EXPLAINED, Allowed
from indexmill.retrieve.table_rows import TableRows

if TYPE_CHECKING:
    from indexmill.retrieve.artifacts import Artifacts


Explanation = dict[str, Any]


class Explanations:
    """Explains answers with a snapshot's texts. contents: passages x entities. sentence_passage: ``(n_sentences,)``."""

    def __init__(self, artifacts: Artifacts, contents: Sparse, sentence_passage: npt.NDArray[np.integer]) -> None:
        self._contents = contents
        self._sentence_passage = sentence_passage
        self._passages = passages_of(artifacts)
        self._sentences = TableRows(artifacts, "sentences", ["start", "end"])
        self._entities = entity_labels_of(artifacts)

    def of(self, answers: Sequence[Retrieved], readable: Allowed | None = None) -> list[list[Explanation]]:
        """Explain every passage found: see ``TriGraphReader``. readable: passages that may be read; None for all."""
        entities: list[list[list[Explanation]]] = [[[] for _ in answer.passages] for answer in answers]
        active = joined([answer.active for answer in answers])
        lists = [named for of_one in entities for named in of_one]
        for hit, description in self._named(answers, active, readable) if len(active.pairs) else ():
            lists[hit].append(description)
        return [
            [{"dense": answer.dense, "entities": named} for named in of_one]
            for answer, of_one in zip(answers, entities, strict=True)
        ]

    def _named(
        self, answers: Sequence[Retrieved], active: Activated, readable: Allowed | None
    ) -> zip[tuple[int, Explanation]]:
        """Pair each hit's number with the description of each entity in it, by hit and descending score."""
        asking = np.arange(len(answers)).repeat([len(answer.passages) for answer in answers])
        hits, entities, _ = self._contents.links(np.concatenate([answer.passages for answer in answers]))
        inside, column = matches(paired(asking[hits], entities), active.pairs)
        hits = hits[inside]
        best = first_of_each(hits, active.scores[column], EXPLAINED)
        column = column[best]
        once = distinct(column)
        descriptions = self._explain(active.at(once), readable)
        return zip(hits[best].tolist(), [descriptions[i] for i in once.searchsorted(column).tolist()], strict=True)

    def _explain(self, active: Activated, readable: Allowed | None) -> list[Explanation]:
        _, entities = parts(active.pairs)
        rows = distinct(np.concatenate([entities, active.sources[active.sources >= 0]]))
        surfaces = self._entities.shown(rows, readable)
        places = rows.searchsorted(entities)
        bridges = distinct(active.sentences[active.sentences >= 0])
        sentences = [*self._texts(bridges), None]
        sources = [*surfaces, None]
        return [
            {
                "entity_id": identity,
                "surface": surfaces[at],
                "score": score,
                "hop": level - 1,
                "reached_from": sources[source],
                "sentence": sentences[sentence],
            }
            for identity, at, score, level, source, sentence in zip(
                self._entities.ids(entities),
                places.tolist(),
                active.scores.tolist(),
                active.levels.tolist(),
                np.where(active.sources < 0, -1, rows.searchsorted(active.sources)).tolist(),
                np.where(active.sentences < 0, -1, bridges.searchsorted(active.sentences)).tolist(),
                strict=True,
            )
        ]

    def _texts(self, sentences: npt.NDArray[np.int64]) -> list[str]:
        passages = self._passages.texts(self._sentence_passage[sentences].astype(np.int64))
        starts, ends = self._sentences.take(sentences, "start"), self._sentences.take(sentences, "end")
        return [text[start:end] for text, start, end in zip(passages, starts, ends, strict=True)]
