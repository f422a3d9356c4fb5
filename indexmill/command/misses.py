"""``indexmill evaluate --misses``: show the questions with missed evidence, and the documents found instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indexmill.results import QuestionResult
from indexmill.text.counted import counted
from indexmill.text.printable import escaped, one_line

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot


def titles_of(snapshot: Snapshot) -> dict[str, str]:
    """Read the title of every document."""
    if not snapshot.manifest.corpus.documents:
        return {}
    rows = snapshot.table("documents", columns=["document_id", "title"])
    return dict(zip(rows.column("document_id").to_pylist(), rows.column("title").to_pylist(), strict=True))


def misses_of(results: Sequence[QuestionResult], k: int, most: int, titles: Mapping[str, str]) -> dict[str, Any]:
    """Collect the evidence that a method misses among the first k documents, as ``--json`` prints it.

    The fields: questions, documents: the numbers of questions with missed evidence and of missed gold documents; first:
    at most ``most`` of these questions, by descending share of missed evidence, then in the order of the file.
    """
    missing = [result for result in results if result.missed(k)]
    order = sorted(range(len(missing)), key=lambda i: (1 - len(missing[i].missed(k)) / len(missing[i].gold_ids), i))

    def named(document: str) -> dict[str, Any]:
        return {"document_id": document, "title": titles.get(document)}

    return {
        "k": k,
        "questions": len(missing),
        "documents": sum(len(result.missed(k)) for result in missing),
        "first": [
            {
                "id": result.id,
                "question": result.question,
                "type": result.type,
                "missed": [{**named(document), "rank": rank} for document, rank in result.missed(k)],
                "found": [
                    {**named(document), "gold": document in result.gold_ids} for document in result.documents[:k]
                ],
            }
            for result in (missing[i] for i in order[:most])
        ],
    }


def shown_misses(method: str, misses: Mapping[str, Any], questions: int, depth: int) -> str:
    """Format a method's misses as text. depth: the number of documents retrieved per question."""
    k, lines = misses["k"], []
    for miss in misses["first"]:
        kind = "" if miss["type"] is None else f" ({miss['type']})"
        lines.append(f"{miss['question']}{kind}")
        for document in miss["missed"]:
            rank = document["rank"]
            where = f"rank {rank}" if rank else f"not among {counted(depth, 'document')}"
            where = where if document["title"] is not None else "not in the snapshot"
            lines.append(f"    missed: {_named(document)}, {where}")
        names = [f"{'* ' if document['gold'] else ''}{_named(document)}" for document in miss["found"]]
        lines += [f"    found {rank:>2}: {name}" for rank, name in enumerate(names, start=1)] or ["    found nothing"]
        lines.append("")
    missing = f"{misses['questions']:,} of {counted(questions, 'question')}"
    verb = "misses" if misses["questions"] == 1 else "miss"
    heading = f"{method}: {missing} {verb} evidence among the first {counted(k, 'document')}"
    lines.append(f"{heading}, {counted(misses['documents'], 'document')} together")
    return "\n".join(map(one_line, lines))


def _named(document: Mapping[str, Any]) -> str:
    title, name = document["title"], escaped(str(document["document_id"]))
    return f"{title} [{name}]" if title else name
