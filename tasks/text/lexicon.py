"""What libraries know of the words of languages: function words (spaCy), places and months (CLDR, by babel)."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from functools import cache
from typing import Any

Span = tuple[int, int]

_NO_PLACES = frozenset(["001", "EZ", "QO", "UN", "XA", "XB", "ZZ"])
"""The codes of territories that are no places: the world, the euro zone, pseudo-locales, the unknown territory."""

_OTHER_CODES = {"nn": "nb", "no": "nb"}
"""Languages under whose codes spaCy has no words, with codes under which it has them."""


@cache
def function_words(language: str) -> frozenset[str]:
    """Return the function words and other very common words of a language, in lower case; none if spaCy has none.

    language: a two-letter code (ISO 639-1), here and below.
    """
    from spacy.util import get_lang_class  # takes seconds

    try:
        words = get_lang_class(_OTHER_CODES.get(language, language)).Defaults.stop_words
    except ImportError:
        return frozenset()
    return frozenset(word.strip().lower() for word in words)


@cache
def places(language: str) -> frozenset[str]:
    """Return the names of countries, continents and the cities that name time zones, as the language has them."""
    names: set[str] = set()
    for locale in _locales(language):
        names |= {name for code, name in locale.territories.items() if code not in _NO_PLACES}
        names |= {zone["city"] for zone in locale.time_zones.values() if zone.get("city")}
    return frozenset(name for name in names if len(name) > 1)


@cache
def months(language: str) -> frozenset[str]:
    """Return the names of months as dates of the language have them, without a full stop."""
    forms = [locale.months["format"] for locale in _locales(language)]
    names = (name for form in forms for width in ("wide", "abbreviated") for name in form[width].values())
    return frozenset(name.rstrip(".") for name in names)


def _locales(language: str) -> list[Any]:
    """Return the locales of a language; for Chinese, one for each script; none if CLDR has none."""
    from babel import Locale, UnknownLocaleError

    try:
        return [Locale(language), *([Locale("zh", script="Hant")] if language == "zh" else [])]
    except (ValueError, UnknownLocaleError):
        return []


WordsByStart = Mapping[str, tuple[str, ...]]


def words_by_start(words: Iterable[str], length: int) -> WordsByStart:
    """Return words by their first characters, of which there are `length`, longest first."""
    by_start: dict[str, list[str]] = defaultdict(list)
    for word in sorted(set(words), key=lambda word: (-len(word), word)):
        by_start[word[:length]].append(word)
    return {start: tuple(group) for start, group in by_start.items()}


def length_at(words: tuple[str, ...], text: str, start: int, end: int) -> int:
    """Return the length of the first of some words that the text has at a position; 0 if it has none before the end."""
    return next((len(word) for word in words if text.startswith(word, start, end)), 0)


@cache
def _places_by_start(language: str) -> WordsByStart:
    return words_by_start(places(language), 2)


def place_at(language: str, text: str, start: int, end: int) -> int:
    """Return the length of the longest place that a text names at a position; 0 if it names none there."""
    return length_at(_places_by_start(language).get(text[start : start + 2], ()), text, start, end)


def places_in(language: str, text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the places that a range of the text names, whether or not words end there."""
    at = start
    while at < end:
        length = place_at(language, text, at, end)
        if length:
            yield at, at + length
        at += length or 1
