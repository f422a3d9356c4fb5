"""How well the snapshot's encoder reads the language of a question: the weight of methods that begin at vectors.

An encoder that has not learnt a language cuts its words into letters, or does not know the letters: its vectors then
compare little but spelling. The build counts, for every language of the corpus, at how many of the joints between two
letters the tokenizer cuts words of prose (``indexmill.store.manifest.LanguageCounts``). The legibility of a language is

    1 if at most .15 of the joints are cut, 0 from .4 on, linear between.

all-MiniLM-L6-v2 cuts .02 of the joints of English, .24 of Spanish, .29 of German, and .96 or more of Russian, Arabic
and Chinese; multilingual-e5-small cuts .07 to .19 of these, and none of Chinese.

The language of a question is that of its first passages by words: the corpus decides, no model is asked. Without
postings, and for languages that the build did not count, the legibility is 1.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from indexmill.retrieve.artifacts import Artifacts, CacheKey
from indexmill.retrieve.method_registry import words_of
from indexmill.retrieve.passage_rows import passages_of
from indexmill.retrieve.retrieval_method import QueryBatch
from indexmill.retrieve.term_index import by_words
from indexmill.store.manifest import LanguageCounts, Manifest
from indexmill.text.counted import counted

_LOW, _HIGH = 0.15, 0.4

_LEAST = 1e-6
"""The least legibility of a question: vectors then order only passages that share no words with it."""

_FIRST = 5
"""The number of passages that determine a question's language."""

HARDLY = 0.4
"""The legibility below which a user should choose another encoder."""

_UNKNOWN = 0.1  # the share of unknown tokens from which they are the reason to name

_LEGIBILITY: CacheKey[Legibility] = CacheKey("legibility")


def legibility_of(artifacts: Artifacts) -> Legibility:
    """Return the legibility of a snapshot's languages, computed once."""
    return artifacts.once(_LEGIBILITY, lambda: Legibility(artifacts))


def language_legibility(language: str, counts: LanguageCounts) -> float:
    """Return the legibility of a language, 0 to 1; 1 if it is unknown, or if nothing was counted."""
    if not language or not counts.joints:
        return 1.0
    return min(max((_HIGH - counts.cuts / counts.joints) / (_HIGH - _LOW), 0.0), 1.0)


class Legibility:
    """The legibility of questions to a snapshot."""

    def __init__(self, artifacts: Artifacts) -> None:
        by_language = {
            language: language_legibility(language, counts)
            for language, counts in artifacts.manifest.corpus.languages_that_count().items()
        }
        self._by_language: Mapping[str, float] = by_language if min(by_language.values(), default=1.0) < 1.0 else {}
        self._artifacts = artifacts

    def of_questions(self, batch: QueryBatch) -> list[float]:
        """Return the legibility of each question, above 0: the mean of the languages of its first passages by words."""
        words = words_of(self._artifacts) if self._by_language else None
        if words is None:
            return [1.0] * len(batch.questions)
        first = [ranked.rows[:_FIRST] for ranked in by_words(words, batch, _FIRST)]
        languages = iter(passages_of(self._artifacts).languages(np.concatenate(first)))
        means = []
        for rows in first:
            values = [self._by_language.get(next(languages), 1.0) for _ in rows]
            means.append(max(sum(values) / len(values), _LEAST) if values else 1.0)
        return means


def languages_of(manifest: Manifest) -> dict[str, dict[str, int | float]]:
    """Return the documents, passages and legibility of each language, JSON-ready; the most documents first."""
    ordered = sorted(manifest.corpus.languages.items(), key=lambda pair: (-pair[1].documents, pair[0]))
    return {
        language: {
            "documents": counts.documents,
            "passages": counts.passages,
            "legibility": round(language_legibility(language, counts), 3),
        }
        for language, counts in ordered
    }


def illegible_line(manifest: Manifest) -> str:
    """Return one line about the languages that the encoder hardly reads, and the remedy; empty if it reads all.

    See ``Corpus.languages_that_count``.
    """
    languages = [
        (language, counts)
        for language, counts in manifest.corpus.languages_that_count().items()
        if language_legibility(language, counts) < HARDLY
    ]
    if not languages:
        return ""
    descriptions = []
    for language, counts in sorted(languages, key=lambda pair: (-pair[1].documents, pair[0])):
        unknown = counts.unknown / max(counts.tokens, 1)
        traits = f"{unknown:.0%} of the tokens are unknown to it"
        if unknown < _UNKNOWN:
            traits = f"it cuts words at {counts.cuts / counts.joints:.0%} of the joints between letters"
        descriptions.append(f"{counted(counts.documents, 'document')} in {language} ({traits})")
    encoder = manifest.models.get("encoder")
    model = encoder.get("model") if isinstance(encoder, dict) else None
    return (
        f"the encoder {model} hardly reads {', '.join(descriptions)}; questions about them are answered by their "
        "words: choose an encoder for these languages with embed.model, see docs/operations/encoders.md"
    )
