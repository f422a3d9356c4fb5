"""Words of languages that libraries carry: function words (spaCy) and names of places (CLDR, by babel)."""

from __future__ import annotations

from functools import cache

_LEAST_PLACE = 2
"""The minimum number of characters of a place's name."""
_NO_PLACES = frozenset(["001", "EZ", "QO", "UN", "XA", "XB", "ZZ"])
"""The codes of territories that are none: the world, the euro zone, pseudo-locales, and what is unknown."""


@cache
def function_words(language: str) -> frozenset[str]:
    """Return the function words and other very common words of a language, in lower case; none if it is unknown.

    language: a two-letter code (ISO 639-1).
    """
    from spacy.util import get_lang_class  # seconds, which an English corpus does not need

    try:
        words = get_lang_class(language).Defaults.stop_words
    except ImportError:
        return frozenset()
    return frozenset(word.strip().lower() for word in words)


@cache
def places(language: str) -> frozenset[str]:
    """Return the names of countries, continents and of cities that name a time zone, as the language writes them."""
    from babel import Locale, UnknownLocaleError

    try:
        locale = Locale(language)
    except (ValueError, UnknownLocaleError):
        return frozenset()
    territories = [name for code, name in locale.territories.items() if code not in _NO_PLACES]
    cities = [zone["city"] for zone in locale.time_zones.values() if zone.get("city")]
    return frozenset(name for name in (*territories, *cities) if len(name) >= _LEAST_PLACE)


@cache
def months(language: str) -> frozenset[str]:
    """Return the names of months, as a date of the language writes them, in lower case."""
    from babel import Locale, UnknownLocaleError

    try:
        forms = Locale(language).months["format"]
    except (ValueError, UnknownLocaleError):
        return frozenset()
    return frozenset(name.lower() for width in ("wide", "abbreviated") for name in forms[width].values())
