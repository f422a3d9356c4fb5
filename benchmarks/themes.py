"""What summaries are for: how much of a theme is read within a budget of tokens, from summaries and from passages.

    python -m benchmarks.themes STORE --questions QUESTIONS.jsonl [--least 5]     questions with many gold documents
    python -m benchmarks.themes STORE --folders [--index CORPUS.jsonl.gz]         folders of the documents' ids

No model writes the themes: a theme is a question that at least ``--least`` documents answer (Cranfield), or a folder of
so many documents whose index page's title is the question (techdocs; the index pages are no part of the theme).

For budgets of 500, 1,000 and 2,000 tokens and the patterns of lsh_tree, with the passages of ``dense`` and ``bm25``
beside them, the table has the shares of a theme's documents

- read: of which a passage is among the hits;
- told: of which a passage is, or a sentence stands in a summary among the hits, word for word (extractive summaries);
- under: of which a passage is, or that a summary among the hits stands over, whatever it tells of them;

and ``precise``, the share of tokens that are the theme's: of passages of its documents, and of each summary the part
that passages of the theme have in all passages below it.
"""

from __future__ import annotations

import gzip
import json
import re
from collections import defaultdict
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

import indexmill
from benchmarks.machine import argument_parser, describe_machine
from indexmill.evaluate.recall import read_questions
from indexmill.hits import Hit
from indexmill.retrieve.budget import fitting
from indexmill.snapshot import Snapshot

BUDGETS = (500, 1000, 2000)

CANDIDATES = 200

INDEX = re.compile(r"index|(?:.*-)?(?:portal|start-page)")
"""The names of pages that lead to the others of their folder."""

SHORTEST = 20  # characters of a sentence that is looked for in a summary

PATTERNS: Mapping[str, dict[str, Any]] = {
    "collapsed": {},
    "detailed 1.0": {"pattern": "detailed", "ratio": 1.0},
    "detailed 0.8": {"pattern": "detailed", "ratio": 0.8},
    "summarised 0.8": {"pattern": "summarised", "ratio": 0.8},
    "summarised 1.0": {"pattern": "summarised", "ratio": 1.0},
    "collapsed, as printed": {"preset": "paper"},
    "summarised 1.0, as printed": {"pattern": "summarised", "ratio": 1.0, "preset": "paper"},
}


class Theme(NamedTuple):
    """A question, and the documents that it is about."""

    question: str
    documents: frozenset[str]


def themes_of_questions(path: Path, least: int) -> list[Theme]:
    """The questions of a file that so many documents answer."""
    return [Theme(one.question, frozenset(one.gold_ids)) for one in read_questions(path) if len(one.gold_ids) >= least]


def themes_of_folders(identities: Sequence[str], titles: Mapping[str, str], least: int) -> list[Theme]:
    """The folders of so many documents, by the title of their index page: that of the shortest name.

    identities: of the documents of the store. titles: of documents among which index pages are looked for.
    """
    folders: dict[str, set[str]] = defaultdict(set)
    for identity in identities:
        folders[identity.rpartition("/")[0]].add(identity)
    pages: dict[str, list[str]] = defaultdict(list)
    for identity in titles:
        folder, slash, name = identity.rpartition("/")
        if slash and INDEX.fullmatch(name.partition(".")[0]) and titles[identity].strip():
            pages[folder].append(identity)
    found = []
    for folder, documents in sorted(folders.items()):
        if folder in pages and len(documents - set(pages[folder])) >= least:
            index = min(pages[folder], key=lambda page: (len(page), page))
            found.append(Theme(titles[index], frozenset(documents - set(pages[folder]))))
    return found


def titles_of(corpus: Path | None) -> dict[str, str]:
    """The titles of a corpus in JSON Lines, which may be compressed, by id."""
    if corpus is None:
        return {}
    with gzip.open(corpus, "rt") if corpus.suffix == ".gz" else corpus.open(encoding="utf-8") as file:
        return {record["id"]: record["title"] for record in map(json.loads, file)}


class Sentences:
    """The sentences of each document, and the documents of each passage."""

    def __init__(self, snapshot: Snapshot) -> None:
        passages = snapshot.table("passages", ["passage_id", "document_id", "text"]).to_pylist()
        self.documents = {row["passage_id"]: row["document_id"] for row in passages}
        texts = {row["passage_id"]: row["text"] for row in passages}
        self._of: dict[str, list[str]] = defaultdict(list)
        for row in snapshot.table("sentences", ["passage_id", "start", "end"]).to_pylist():
            sentence = texts[row["passage_id"]][row["start"] : row["end"]].strip()
            if len(sentence) >= SHORTEST:
                self._of[self.documents[row["passage_id"]]].append(sentence)

    def tell(self, text: str, document: str) -> bool:
        """Whether a sentence of the document stands in a text."""
        return any(sentence in text for sentence in self._of[document])


def shares(theme: Theme, hits: Sequence[Hit], sentences: Sentences) -> tuple[float, ...]:
    """What the table has of one theme: read, told, under, precise, and the tokens."""
    read = {one for hit in hits if hit.kind == "passage" for one in hit.document_ids} & theme.documents
    told, under = set(read), set(read)
    own = total = 0.0
    for hit in hits:
        total += hit.tokens or 0
        if hit.kind == "passage":
            own += (hit.tokens or 0) * (hit.document_ids[0] in theme.documents)
            continue
        below = (hit.explanation or {}).get("passages", [])
        own += (hit.tokens or 0) * float(np.mean([sentences.documents[one] in theme.documents for one in below]))
        inside = theme.documents.intersection(hit.document_ids)
        under |= inside
        told |= {one for one in inside - told if sentences.tell(hit.text, one)}
    count = len(theme.documents)
    return len(read) / count, len(told) / count, len(under) / count, own / max(total, 1), total


def main() -> None:
    parser = argument_parser(__doc__)
    parser.add_argument("store")
    parser.add_argument("--questions", type=Path)
    parser.add_argument("--folders", action="store_true")
    parser.add_argument("--index", type=Path, help="the whole corpus, where STORE is of a cut without the index pages")
    parser.add_argument("--least", type=int, default=5)
    chosen = parser.parse_args()
    if chosen.folders == (chosen.questions is not None):
        parser.error("give --questions FILE or --folders")
    print(describe_machine())
    with indexmill.open(chosen.store) as snapshot:
        if chosen.folders:
            rows = snapshot.table("documents", ["document_id", "title"]).to_pylist()
            titles = {row["document_id"]: row["title"] for row in rows}
            themes = themes_of_folders(list(titles), titles | titles_of(chosen.index), chosen.least)
        else:
            themes = themes_of_questions(chosen.questions, chosen.least)
        if not themes:
            parser.error(f"there is no theme of {chosen.least} documents")
        sizes = [len(theme.documents) for theme in themes]
        print(f"{len(themes)} themes of {np.median(sizes):.0f} documents ({min(sizes)} to {max(sizes)})")
        texts = [theme.question for theme in themes]
        vectors = snapshot.encode(texts)
        sentences = Sentences(snapshot)
        print(f"\n{'tokens':>6}  {'':28}{'read':>7}{'told':>7}{'under':>7}{'precise':>9}{'used':>7}")
        plain = {
            method: snapshot.retrieve_batch(texts, method=method, k=CANDIDATES, vectors=vectors, explain=False)
            for method in ("dense", "bm25")
            if method in snapshot.methods
        }
        for budget in BUDGETS:
            lists = {
                method: [[hits[i] for i in fitting([hit.tokens or 0 for hit in hits], budget)] for hits in found]
                for method, found in plain.items()
            }
            for name, settings in PATTERNS.items():
                lists[name] = snapshot.retrieve_batch(
                    texts,
                    method="lsh_tree",
                    k=CANDIDATES,
                    vectors=vectors,
                    parameters={**settings, "token_budget": budget},
                )
            for name, found in lists.items():
                each = [shares(theme, hits, sentences) for theme, hits in zip(themes, found, strict=True)]
                means = np.mean(each, axis=0)
                print(f"{budget:>6}  {name:28}" + "".join(f"{one:7.3f}" for one in means[:3]), end="")
                print(f"{means[3]:9.3f}{means[4]:7.0f}", flush=True)


if __name__ == "__main__":
    main()
