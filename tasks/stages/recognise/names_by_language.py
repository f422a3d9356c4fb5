"""The rules of every language: by capitals where the script has them, else by cues (`names_without_capitals`).

Function words that open a sentence belong to no name (*En 1950*, *Der Ausschuss*). In German, where nouns have capitals
too, a single word is a term instead if the text has it after an article, or if it ends like a noun or a plural; cities
and countries are names all the same. In Turkish, the apostrophe ends a name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from functools import cache

from indexmill.models.recogniser import Kind, Mention, RulesRecogniser, opens_sentence
from tasks.stages.recognise.name_cues import cues_of
from tasks.stages.recognise.names_without_capitals import CASELESS, names_in, without_words
from tasks.text.lexicon import Span, function_words, months, place_at, places


class RulesByLanguage:
    """Finds names in texts of any language, without a model; in English as `RulesRecogniser` does."""

    fingerprint = "rules/2"

    def recognise(self, title: str, text: str, language: str = "") -> list[Mention]:
        """Find the mentions of a document; see ``Recogniser``. Unknown languages are treated as English."""
        rules = RulesRecogniser()
        if language in ("", "en"):
            return rules.recognise(title, text)
        if language in CASELESS:
            mentions = [*rules.recognise(title, without_words(text)), *names_in(text, language)]
        else:
            mentions = list(_with_capitals(rules.recognise(title, text), text, language))
        first = {(mention.field, mention.start, mention.end): mention for mention in reversed(mentions)}
        return [first[key] for key in sorted(first)]


def _with_capitals(mentions: Iterable[Mention], text: str, language: str) -> Iterator[Mention]:
    nouns = _german_nouns(text) if language == "de" else frozenset()
    for mention in mentions:
        if mention.field == "title" or mention.kind not in ("name", "part"):
            yield mention
            continue
        for start, end in _names_within(text, mention.start, mention.end, language):
            kind: Kind = mention.kind
            if _is_date(text[start:end], language):
                kind = "date"
            elif language == "de" and _is_german_noun(text, start, end, nouns):
                kind = "term"
            yield Mention("text", start, end, kind)


def _is_date(name: str, language: str) -> bool:
    month, _, year = name.partition(" ")
    month = month.rstrip(".")
    return month in months(language) or (year.isdigit() and month.lower() in map(str.lower, months(language)))


@cache
def _separators(language: str) -> re.Pattern[str]:
    """Compile the pattern of what stands between two names in a run of capitalised words."""
    if language == "tr":
        return re.compile(r"['’][^\W\dA-ZÇĞİÖŞÜ]{1,12}(?: |$)")  # a suffix
    ranks = "|".join(sorted(cues_of("de").ranks))
    return re.compile(rf"(?<! von)(?: (?:der|das|den|dem|des|und|zum|zur))+ | von (?:der|dem|den) (?=(?:{ranks})\b)")


def _names_within(text: str, start: int, end: int, language: str) -> Iterator[Span]:
    """Yield the names in a run of capitalised words."""
    separators = []
    if language in ("de", "tr"):
        separators = [match.span() for match in _separators(language).finditer(text, start, end)]
    starts, ends = [start, *(after for _, after in separators)], [*(before for before, _ in separators), end]
    for first, last in zip(starts, ends, strict=True):
        if opens_sentence(text, first):
            first = _after_function_words(text, first, last, language)
        if language == "de":
            first = _after_german_ranks(text, first, last)
        if last - first > 1 and text[first].isalpha() and not text[first].islower():
            yield first, last


_WORD_AND_SPACES = re.compile(r"(\S+) *")


def _after_function_words(text: str, start: int, end: int, language: str) -> int:
    """Return where a name begins that opens a sentence."""
    common = function_words(language)
    while start < end and not _is_place(language, text, start, end):
        word = _WORD_AND_SPACES.match(text, start, end)
        if word is None or word[1].lower() not in common or (word[1].isupper() and len(word[1]) > 1):
            break
        start = word.end()
    return start


def _is_place(language: str, text: str, start: int, end: int) -> bool:
    """Return True if words at a position name a place, as *El Salvador* does, and are no function word."""
    last = start + place_at(language, text, start, end)
    return (
        last > start
        and not text[last : last + 1].isalnum()
        and text[start:last].lower() not in function_words(language)
    )


_GERMAN_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_PLURAL_OR_COMPOUND = re.compile(r"\w+(?:e|en|ern|eln)|\w{15,}")
_BEFORE_PLACES = frozenset(["in", "nach", "aus"])


def _german_nouns(text: str) -> frozenset[str]:
    """Return the words that the text has after an article, with or without an adjective between."""
    nouns, determiners = set(), cues_of("de").determiners
    before, earlier = "", ""
    for word in _GERMAN_WORD.findall(text):
        is_adjective = before[:1].islower() and before[-1:] in ("e", "n", "r", "s", "m")
        if word[0].isupper() and (before.lower() in determiners or (is_adjective and earlier.lower() in determiners)):
            nouns.add(word)
        before, earlier = word, before
    return frozenset(nouns)


def _after_german_ranks(text: str, start: int, end: int) -> int:
    """Return where the name in a run of capitalised words begins."""
    while (word := _WORD_AND_SPACES.match(text, start, end)) and word.end() < end:
        if word[1].rstrip(".") not in cues_of("de").ranks:
            break
        start = word.end()
    return start


def _is_german_noun(text: str, start: int, end: int, nouns: frozenset[str]) -> bool:
    """Return True if a capitalised word is a noun that is no name. nouns: the words that stand after an article."""
    word = text[start:end]
    if " " in word or word in places("de") or word.isupper():
        return False
    before = _GERMAN_WORD.findall(text, max(0, start - 30), start)
    is_place = bool(before) and before[-1] in _BEFORE_PLACES
    cues = cues_of("de")
    ends_like_noun = word.removesuffix("s").endswith(tuple(cues.endings)) or _PLURAL_OR_COMPOUND.fullmatch(word)
    return bool(ends_like_noun and not is_place) or word in nouns or word in cues.ranks
