"""``indexmill evaluate --misses``: the questions whose evidence was not found, and what was found instead."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from indexmill.results import QuestionResult
from indexmill.text.counted import counted
from indexmill.text.printable import escaped, one_line

if TYPE_CHECKING:
    from indexmill.snapshot import Snapshot


def titles_of(snapshot: Snapshot) -> dict[str, str]:
    """The title of every document."""
    if not snapshot.manifest.corpus.documents:
        return {}
    rows = snapshot.table("documents", columns=["document_id", "title"])
    return dict(zip(rows.column("document_id").to_pylist(), rows.column("title").to_pylist(), strict=True))


def misses_of(results: Sequence[QuestionResult], k: int, most: int, titles: Mapping[str, str]) -> dict[str, Any]:
    """What one method misses among the first k documents, as ``--json`` prints it.

    questions, documents: how many questions miss some evidence, and how many gold documents are missed. first: at most
    so many of the questions, those that miss the largest part of their evidence first, then in the order of the file.
    """
    missing = [one for one in results if one.missed(k)]
    order = sorted(range(len(missing)), key=lambda i: (1 - len(missing[i].missed(k)) / len(missing[i].gold_ids), i))

    def named(document: str) -> dict[str, Any]:
        return {"document_id": document, "title": titles.get(document)}

    return {
        "k": k,
        "questions": len(missing),
        "documents": sum(len(one.missed(k)) for one in missing),
        "first": [
            {
                "id": one.id,
                "question": one.question,
                "type": one.type,
                "missed": [{**named(document), "rank": rank} for document, rank in one.missed(k)],
                "found": [{**named(document), "gold": document in one.gold_ids} for document in one.documents[:k]],
            }
            for one in (missing[i] for i in order[:most])
        ],
    }


def shown_misses(method: str, misses: Mapping[str, Any], questions: int, depth: int) -> str:
    """The same as people read it; depth: documents of each question that were looked through."""
    k, lines = misses["k"], []
    for one in misses["first"]:
        kind = "" if one["type"] is None else f" ({one['type']})"
        lines.append(f"{one['question']}{kind}")
        for document in one["missed"]:
            rank = document["rank"]
            where = f"rank {rank}" if rank else f"not among {counted(depth, 'document')}"
            where = where if document["title"] is not None else "not in the snapshot"
            lines.append(f"    missed: {_named(document)}, {where}")
        found = [f"{'* ' if document['gold'] else ''}{_named(document)}" for document in one["found"]]
        lines += [f"    found {place:>2}: {name}" for place, name in enumerate(found, start=1)] or ["    found nothing"]
        lines.append("")
    missing = f"{misses['questions']:,} of {counted(questions, 'question')}"
    verb = "misses" if misses["questions"] == 1 else "miss"
    said = f"{method}: {missing} {verb} evidence among the first {counted(k, 'document')}"
    lines.append(f"{said}, {counted(misses['documents'], 'document')} together")
    return "\n".join(map(one_line, lines))


def _named(document: Mapping[str, Any]) -> str:
    title, name = document["title"], escaped(str(document["document_id"]))
    return f"{title} [{name}]" if title else name
