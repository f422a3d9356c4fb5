"""bm25: rank a snapshot's passages by the words of the question. The lexical baseline."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.retrieval_method import PassageRetriever, QueryBatch, Ranking, parameters_of
from indexmill.retrieve.term_index import (
    STEMMERS,
    Bm25Parameters,
    Ranked,
    TermIndex,
    by_words,
    joined_postings,
)
from indexmill.store.manifest import Manifest
from indexmill.text.terms import Analyser, stem_of, stemmer_of

_INDEX: CacheKey[TermIndex] = CacheKey("bm25 index")


class Bm25(PassageRetriever):
    """Retrieves passages by the words that they share with the question; a passage that shares none is not a hit.

    The explanation of a hit is ``{"terms": [...]}``: the question's words that the passage contains in some form, each
    with its ``share`` of the score, largest first.
    """

    uses_vectors = False

    def __init__(self, artifacts: Artifacts) -> None:
        super().__init__(artifacts)
        self._setting = parameters_of(artifacts, "bm25", Bm25Parameters)
        self._index = term_index_of(artifacts)

    def _use(self, setting: Any) -> None:
        super()._use(setting)
        self._index = self._index.with_parameters(setting)

    def rank(self, batch: QueryBatch, k: int) -> Iterator[Ranking]:
        """Rank the passages of each question: see ``PassageRetriever``."""
        for question, ranked in zip(batch.questions, by_words(self._index, batch, k), strict=True):
            yield Ranking(ranked.rows, ranked.scores, partial(_explanations, ranked, self._index, question))


def term_index_of(artifacts: Artifacts) -> TermIndex:
    """Open the postings of a snapshot that has the family; raises CorruptBlob if they do not match its passages."""
    setting = parameters_of(artifacts, "bm25", Bm25Parameters)
    shards = artifacts.shards("bm25")
    artifacts.check_same_shards("passages", "bm25")
    arrays = artifacts.assembled("bm25.1", lambda: joined_postings([artifacts.arrays(one.name) for one in shards]))
    return artifacts.once(_INDEX, lambda: TermIndex(arrays, setting, _stemmers(artifacts.manifest)))


def _stemmers(manifest: Manifest) -> tuple[str, ...]:
    """Return the algorithms of the languages of the corpus, the English one first."""
    return tuple(dict.fromkeys([*STEMMERS, *map(stemmer_of, sorted(manifest.corpus.languages))]))


def _explanations(ranked: Ranked, index: TermIndex, question: str, places: Sequence[int]) -> list[dict[str, Any]]:
    words = Analyser(index.stemmers).words(question)
    names = [words.get(term) or stem_of(term) for term in sorted(index.question_weights([question])[0])]
    shares: dict[int, dict[int, float]] = {place: {} for place in places}
    for place, term, part in zip(ranked.places.tolist(), ranked.terms.tolist(), ranked.parts.tolist(), strict=True):
        if place in shares:
            shares[place][term] = shares[place].get(term, 0.0) + part
    explanations = []
    for place in places:
        score = float(ranked.scores[place])
        largest_first = sorted(shares[place].items(), key=lambda share: (-share[1], share[0]))
        explanations.append({"terms": [{"term": names[term], "share": part / score} for term, part in largest_first]})
    return explanations
