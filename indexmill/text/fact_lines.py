"""Facts as lines of text: labels with aligned values, and shortened digests."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any

from indexmill.text.printable import one_line
from indexmill.text.terminal import display_width, padded

SHORT = 12
"""The number of digits of a displayed digest."""

_DIGEST = re.compile(r"[0-9a-f]{40,128}")


def facts(pairs: Sequence[tuple[str, str]], indent: int = 2) -> list[str]:
    """Return one line per (label, value) pair. Text values are aligned to the left, numbers to the right."""
    labels = [one_line(label) for label, _ in pairs]
    values = [one_line(value) for _, value in pairs]
    width = max(map(display_width, labels), default=0)
    figures = max((display_width(value) for value in values if _is_number(value)), default=0)
    return [
        f"{' ' * indent}{padded(label, width)}  {padded(value, figures, right=True) if _is_number(value) else value}"
        for label, value in zip(labels, values, strict=True)
    ]


def number(value: int) -> str:
    """Format a count with thousands separators."""
    return f"{value:,}"


def words_of(value: Any) -> str:
    """Format a value of a manifest in words instead of JSON, with digests cut to their first digits."""
    if value is None:
        return "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int):
        return number(value)
    if isinstance(value, Mapping):
        return ", ".join(f"{_label(key)} {words_of(inner)}" for key, inner in sorted(value.items())) or "none"
    if isinstance(value, (list, tuple)):
        return ", ".join(map(words_of, value)) or "none"
    text = str(value)
    return text[:SHORT] if _DIGEST.fullmatch(text) else one_line(text)


def _label(key: object) -> str:
    return str(key).replace("_", " ")


def _is_number(text: str) -> bool:
    return re.fullmatch(r"[0-9][0-9,]*", text) is not None


def by_language(languages: Mapping[str, Mapping[str, Any]]) -> str:
    """Return the numbers of documents by language, most first: ``1,320 en, 20 de, 1 unknown``."""
    counts = sorted(((of["documents"], name) for name, of in languages.items()), key=lambda pair: (-pair[0], pair[1]))
    return ", ".join(f"{documents:,} {name or 'unknown'}" for documents, name in counts)
