"""Summarises rejected rows for messages: the most frequent reasons, an example, and the files that failed."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection

import pyarrow as pa
import pyarrow.compute as pc

from indexmill.text.counted import counted
from indexmill.text.printable import one_line

_REASONS_NAMED = 4
_FIELDS = frozenset({"bad-columns", "no-id", "no-text", "not-text"})
"""Reasons that suggest that `corpus.fields` does not match the corpus."""

COSTLY = frozenset({"reader-failed", "too-slow"})
"""Temporary reasons for which another attempt on the same machine costs as much and is unlikely to succeed."""

EMPTY = "empty-file"
"""The reason for files without text, such as front matter alone."""
OLD_FORMAT = "old-format"
"""The reason for files that are recognised only by their content as of a format that is not read."""
NO_FAILURES = frozenset({EMPTY, OLD_FORMAT})
"""Reasons for files that are listed, but are not failures."""

TEMPORARY = COSTLY | {"unreadable-file"}
"""Reasons that may be temporary: permissions, a network, memory that other processes used, a slow disk or processor.
The next version reads these files again, so that it equals a build of an empty store.
"""


def files_refused_for(refused: pa.Table, reasons: Collection[str]) -> set[str]:
    """Return the files with a row (schema QUARANTINE) that was rejected for one of these reasons."""
    return set(_files(refused, _refused_for(refused, reasons)))


def failures_of(refused: pa.Table) -> pa.Table:
    """Return the rejected rows (schema QUARANTINE) that are failures."""
    return refused.filter(pc.invert(_refused_for(refused, NO_FAILURES)))


def failed_files(refused: pa.Table) -> list[str]:
    """Return the files with a row (schema QUARANTINE) that crashed or stalled the reader, or exhausted its memory."""
    return _files(refused, _refused_for(refused, COSTLY))


def unread_files(refused: pa.Table) -> list[str]:
    """Return the files that could not be read to the end and may contain more documents."""
    further = pc.and_(_refused_for(refused, COSTLY), pc.is_null(refused["document_id"]))
    return _files(refused, pc.or_(further, pc.equal(refused["reason"], "unreadable-file")))


def reasons_of(refused: pa.Table) -> str:
    """Return the most frequent reasons in rejected rows (schema QUARANTINE), such as `10 no-text, 2 not-json`."""
    ranking = _ranked(refused)
    named = [f"{count} {reason}" for reason, count in ranking[:_REASONS_NAMED]]
    if rest := sum(count for _, count in ranking[_REASONS_NAMED:]):
        named.append(f"{rest} for other reasons")
    return ", ".join(named)


def example_of(refused: pa.Table) -> str:
    """Return the position of the first row with the most frequent reason, and the reason; '' if no row was rejected.

    The row's content is left out: the message goes into the run's record, which `forget` does not search.
    """
    ranking = _ranked(refused)
    if not ranking:
        return ""
    reason = ranking[0][0]
    row = refused.filter(pc.equal(refused["reason"], reason)).slice(0, 1).to_pylist()[0]
    place = row["file"] if row["line"] is None else f"{row['file']}:{row['line']}"
    hint = "; `corpus.fields` names the fields of a record" if reason in _FIELDS else ""
    return one_line(f"{place} ({reason}){hint}")


def summary_of(refused: pa.Table, further: str = "") -> str:
    """Return a message about rejected rows: number, reasons and example. further: text to add after the reasons."""
    rows = counted(refused.num_rows, "row was", "rows were")
    reasons, example = reasons_of(refused), example_of(refused)
    return f"{rows} refused ({reasons}){further}, such as {example}. `indexmill quarantine` lists them"


def no_document(refused: pa.Table) -> str:
    """Return the message for a corpus without any document."""
    why = summary_of(refused) if refused.num_rows else "its files contain no row"
    return f"the corpus contains no document that can be indexed: {why}"


def _refused_for(refused: pa.Table, reasons: Collection[str]) -> pa.ChunkedArray:
    return pc.is_in(refused["reason"], pa.array(sorted(reasons)))


def _files(refused: pa.Table, chosen: pa.ChunkedArray) -> list[str]:
    return list(refused.filter(chosen).column("file").to_pylist())


def _ranked(refused: pa.Table) -> list[tuple[str, int]]:
    counts = Counter(refused.column("reason").to_pylist())
    return sorted(counts.items(), key=lambda item: (-item[1], item[0]))
