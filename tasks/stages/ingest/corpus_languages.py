"""The languages of a corpus at a glance, from the beginnings of some files."""

from __future__ import annotations

import contextlib
import json
import re
from collections import Counter
from collections.abc import Iterator, Sequence

from tasks.stages.ingest.source_files import SourceFile, open_source
from tasks.text.language import language_of

_FILES = 200
_BYTES = 65_536  # of a file
_RECORDS = frozenset(["json", "json-lines"])
_TEXTS = frozenset(["text", "markdown", "html", "restructured-text", "csv", "tsv"])
_STRING = re.compile(r'"(?:[^"\\\n]|\\.){40,}"')


def languages_of_files(files: Sequence[SourceFile]) -> Counter[str]:
    """Count texts by language: plain files, and long strings of JSON; only texts whose language is detected.

    Of many files, 200 are read, at even intervals; files that cannot be read are left out.
    """
    plain = [file for file in files if file.kind in _RECORDS | _TEXTS and not file.compression]
    languages = Counter[str]()
    for at in range(min(len(plain), _FILES)):
        file = plain[at * len(plain) // min(len(plain), _FILES)]
        try:
            with open_source(file) as opened:
                text = opened.read(_BYTES).decode(errors="ignore")
        except OSError:
            continue  # the build says why
        texts = _strings(text) if file.kind in _RECORDS else [text]
        languages.update(language for language in map(language_of, texts) if language)
    return languages


def _strings(text: str) -> Iterator[str]:
    """Yield the long strings in the beginning of a JSON file."""
    for match in _STRING.finditer(text):
        with contextlib.suppress(ValueError):  # an unknown escape
            yield json.loads(match[0], strict=False)
