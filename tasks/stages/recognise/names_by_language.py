"""Names in texts of any language, without a model: by capitals where a script has them, else by what stands around them.

In scripts without capitals (Chinese, Japanese, Korean, Thai, Arabic, Hebrew, Hindi and others) a name is: a place that
CLDR lists; words beside a cue such as *river* or *president* (`name_cues`); Chinese characters that write the sounds of
a foreign name; what a gloss in Latin letters follows; and words that the text repeats in different surroundings. In
German, where nouns have capitals too, a word after an article is a noun, and so is a word with an ending of nouns. In
other languages, function words that open a sentence belong to no name.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Sequence
from functools import cache
from itertools import combinations

from indexmill.models.recogniser import Kind, Mention, RulesRecogniser, opens_sentence
from indexmill.text.normalise import marks
from indexmill.text.terms import UNSPACED
from tasks.stages.recognise.name_cues import (
    CUES,
    GERMAN_DETERMINERS,
    GERMAN_NOUN,
    GERMAN_RANKS,
    HAN_ENDINGS,
    HAN_FUNCTION,
    HAN_LAST,
    HAN_TITLES,
    HAN_VERBS,
    SURNAMES,
    TRANSLITERATION,
    NameCues,
)
from tasks.text.lexicon import function_words, months, places

Span = tuple[int, int]

_WINDOW = 20_000
"""The characters of a text that are searched for repeated words together."""
_LONGEST_HAN = 12
"""The maximum number of Chinese characters of a name."""
_GAP = 4
"""The maximum number of characters between a place or the sounds of a name, and the ending of the same name."""
_LONGEST_RUN = 8
"""The maximum number of words, or of Chinese characters, of a repeated name."""

_NO_UNIT = "\0"
_CASELESS = frozenset("am ar bn fa gu he hi ja kn ko lo ml mr my ne or pa ps sd si ta te th ug ur yi zh km ka".split())  # noqa: SIM905
_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff々〆ヶ"
_HAN_RUN = re.compile(f"[{_HAN}]+")
_KATAKANA = re.compile("[\u30a1-\u30ff]{2,30}(?:[・＝][\u30a1-\u30ff]{1,30}){0,4}")
_KANA_AND_HAN = re.compile(f"[\u30a1-\u30ff・{_HAN}]+")
_GLOSS = re.compile(r"\s?[（(]\s?[^\W\d_]")
_BRACKETED = re.compile("([《「『][^《》「」『』\n]{1,60}[》」』])")
_UNSPACED = re.compile(f"[{UNSPACED}]")
_QUOTED = re.compile('["“„«]([^"“”„«»，。！？,!?\\n]{2,40})["”“»]')
_QUOTED_WORDS = 5
_CLAUSE = re.compile(r"[^\n.!?;:,()\[\]{}\"“”«»،؛؟।。、，；：！？（）…|]+")


class RulesByLanguage:
    """The rules of `RulesRecogniser` for English, and rules for the other languages."""

    fingerprint = "rules/2"

    def recognise(self, title: str, text: str, language: str = "") -> list[Mention]:
        """Find the mentions; language: that of the document, a two-letter code, empty if unknown."""
        rules = RulesRecogniser()
        if language in ("", "en"):
            return rules.recognise(title, text)
        if language not in _CASELESS:
            return _with_capitals(rules.recognise(title, text), text, language)
        mentions = {(m.field, m.start, m.end): m for m in rules.recognise(title, _separated(text))}
        for match in _QUOTED.finditer(text):
            if len(match[1].split()) <= _QUOTED_WORDS:
                mentions.setdefault(("text", *match.span(1)), Mention("text", *match.span(1), "work"))
        for start, end in _caseless(text, language):
            mentions.setdefault(("text", start, end), Mention("text", start, end, "name"))
        return [mentions[key] for key in sorted(mentions)]


def _separated(text: str) -> str:
    """Replace letters of scripts without spaces by a sign, but in brackets, so that the rules see the letters beside."""
    parts = _BRACKETED.split(text)
    return "".join(part if i % 2 else _UNSPACED.sub("|", part) for i, part in enumerate(parts))


# --- scripts with capitals -------------------------------------------------------------------------------------------


def _with_capitals(mentions: Iterable[Mention], text: str, language: str) -> list[Mention]:
    nouns = _german_nouns(text) if language == "de" else frozenset()
    kept: dict[tuple[str, int, int], Mention] = {}
    for mention in mentions:
        own = [mention]
        if mention.field == "text" and mention.kind in ("name", "part"):
            own = [
                Mention("text", start, end, "date" if _is_date(text[start:end], language) else mention.kind)
                for start, end in _names_within(text, mention.start, mention.end, language, nouns)
            ]
        for kept_mention in own:
            kept.setdefault((kept_mention.field, kept_mention.start, kept_mention.end), kept_mention)
    return [kept[key] for key in sorted(kept)]


def _is_date(name: str, language: str) -> bool:
    month, _, rest = name.partition(" ")
    return month.rstrip(".").lower() in months(language) and (not rest or rest.isdigit())


_CUTS = {
    "de": re.compile(r" (?:der|die|das|den|dem|des|und|zum|zur|im|am) "),
    "tr": re.compile(r"['’][^\W\dA-ZÇĞİÖŞÜ]{1,6}(?: |$)"),  # a suffix
}
"""What parts the names in a run of capitalised words."""


def _names_within(text: str, start: int, end: int, language: str, nouns: frozenset[str]) -> Iterator[Span]:
    """Yield the names in a run of capitalised words."""
    pieces = [(start, end)]
    if language in _CUTS:
        cuts = [match.span() for match in _CUTS[language].finditer(text, start, end)]
        pieces = list(zip([start, *(cut[1] for cut in cuts)], [*(cut[0] for cut in cuts), end], strict=True))
    for first, last in pieces:
        if opens_sentence(text, first):
            first = _after_function_words(text, first, last, language)
        if language == "de":
            first, last = _german(text, first, last, nouns)
        if last - first > 1 and text[first].isupper():
            yield first, last


def _after_function_words(text: str, start: int, end: int, language: str) -> int:
    """Return where a name begins that opens a sentence."""
    words = function_words(language)
    while start < end and not any(
        text.startswith(place, start) for place in _places_at(text[start : start + 2], language)
    ):
        word = re.match(r"[^\s]+", text[start:end])
        if word is None or word[0].lower() not in words or (word[0].isupper() and len(word[0]) > 1):
            break
        start += word.end()
        while start < end and text[start] == " ":
            start += 1
    return start


@cache
def _places_at(first: str, language: str) -> tuple[str, ...]:
    return tuple(place for place in sorted(places(language)) if place.startswith(first) and " " in place)


_GERMAN_WORD = re.compile(r"[^\W\d_]+(?:-[^\W\d_]+)*")
_GERMAN_ENDING = re.compile(rf"\w+{GERMAN_NOUN}s?|\w+(?:e|en|ern|eln)|\w{{15,}}")
_LOCAL = frozenset(["in", "nach", "aus"])


def _german_nouns(text: str) -> frozenset[str]:
    """Return the words that the text writes after an article, with or without an adjective."""
    nouns = set()
    words = [match[0] for match in _GERMAN_WORD.finditer(text)]
    for i, word in enumerate(words):
        if not word[0].isupper() or i == 0:
            continue
        before = words[i - 1].lower()
        if before in GERMAN_DETERMINERS or (
            i > 1 and words[i - 1][0].islower() and words[i - 2].lower() in GERMAN_DETERMINERS and before[-1] in "enrms"
        ):
            nouns.add(word)
    return frozenset(nouns)


def _german(text: str, start: int, end: int, nouns: frozenset[str]) -> Span:
    """Return the name in a run of capitalised words without ranks; an empty span if it is a noun."""
    words = text[start:end].split(" ")
    while len(words) > 1 and words[0].rstrip(".") in GERMAN_RANKS:
        start += len(words.pop(0)) + 1
    if len(words) > 1:
        return start, end
    word = words[0]
    if word in places("de") or (word.isupper() and len(word) > 1):
        return start, end
    before = _GERMAN_WORD.findall(text[max(0, start - 30) : start])
    ends_like_noun = _GERMAN_ENDING.fullmatch(word) and not (before and before[-1] in _LOCAL)
    is_noun = word in nouns or word in GERMAN_RANKS or ends_like_noun
    return (start, start) if is_noun else (start, end)


# --- scripts without capitals ----------------------------------------------------------------------------------------


def _caseless(text: str, language: str) -> Iterator[Span]:
    for offset in range(0, len(text), _WINDOW):
        window = text[offset : offset + _WINDOW]
        if language in ("zh", "ja"):
            spans = _chinese(window) if language == "zh" else _japanese(window)
        elif language == "th":
            spans = _thai(window)
        else:
            spans = _spaced(window, language)
        for start, end in spans:
            yield offset + start, offset + end


def _repeated(units: str, least: Sequence[int]) -> Iterator[Span]:
    """Yield the longest runs of units that occur twice or more beside different neighbours.

    units: a character for each word or character of the text; _NO_UNIT where no run may go on. least: the minimum
    number of occurrences of a run of one unit, of two, and so on; two for all that are longer.
    """
    repeated: list[dict[str, list[int]]] = []
    places_of = [i for i, unit in enumerate(units) if unit != _NO_UNIT]
    while places_of and len(repeated) < _LONGEST_RUN:
        length = len(repeated) + 1
        runs: dict[str, list[int]] = defaultdict(list)
        for at in places_of:
            runs[units[at : at + length]].append(at)
        repeated.append(
            {run: at for run, at in runs.items() if len(at) > 1 and len(run) == length and run[-1] != _NO_UNIT}
        )
        places_of = sorted(at for starts in repeated[-1].values() for at in starts)
    inside: Counter[str] = Counter()  # how often a run occurs within a longer one
    for length in range(len(repeated), 0, -1):
        for run, starts in repeated[length - 1].items():
            before = {units[at - 1] if at and units[at - 1] != _NO_UNIT else at for at in starts}
            after = {
                units[end] if units[end : end + 1] not in ("", _NO_UNIT) else end
                for end in (at + length for at in starts)
            }
            if len(starts) <= inside[run] or len(before) < 2 or len(after) < 2:
                continue
            for first, last in combinations(range(length + 1), 2):
                inside[run[first:last]] = max(inside[run[first:last]], len(starts))
            if run in _ENDING_WORDS:
                continue
            if length > len(least) or len(starts) >= least[length - 1]:
                yield from ((at, at + length) for at in starts)


def _chinese(text: str) -> Iterator[Span]:
    units = [_NO_UNIT] * len(text)
    for run in _HAN_RUN.finditer(text):
        sure = sorted({*_places_in(text, *run.span(), "zh"), *_sounds(text, *run.span())})
        yield from sure
        for start, end in _chunks(text, *run.span(), sure):
            units[start:end] = text[start:end]
            yield from _of_chunk(text, start, end, sure)
    yield from _repeated("".join(units), (len(text), 3))


def _chunks(text: str, start: int, end: int, sure: Sequence[Span]) -> Iterator[Span]:
    """Yield the pieces of a run of Chinese characters between function words and verbs, which are in no sure name."""
    held = {at for first, last in sure for at in range(first, last)}
    first = at = start
    while at < end:
        width = 0
        if at not in held:
            separators = _chinese_separators().get(text[at], ())
            width = next((len(word) for word in separators if text.startswith(word, at) and at + len(word) <= end), 0)
        if width:
            if at - first > 1:
                yield first, at
            first = at + width
        at += width or 1
    if end - first > 1:
        yield first, end


@cache
def _chinese_separators() -> dict[str, tuple[str, ...]]:
    common = [word for word in function_words("zh") if len(word) > 1 and _HAN_RUN.fullmatch(word)]
    return _by_start([*HAN_FUNCTION, *HAN_VERBS, *common], 1)


def _by_start(words: Iterable[str], length: int) -> dict[str, tuple[str, ...]]:
    """Return words by their first characters, longest first."""
    by_start: dict[str, list[str]] = defaultdict(list)
    for word in sorted(set(words), key=lambda word: (-len(word), word)):
        by_start[word[:length]].append(word)
    return {first: tuple(names) for first, names in by_start.items()}


@cache
def _gazetteer(language: str) -> dict[str, tuple[str, ...]]:
    return _by_start(places(language), 2)


def _places_in(text: str, start: int, end: int, language: str) -> Iterator[Span]:
    gazetteer, at = _gazetteer(language), start
    while at < end - 1:
        for place in gazetteer.get(text[at : at + 2], ()):
            if text.startswith(place, at) and at + len(place) <= end:
                yield at, at + len(place)
                at += len(place) - 1
                break
        at += 1


_SOUNDS = re.compile(f"[{''.join(sorted(TRANSLITERATION))}]{{3,{_LONGEST_HAN}}}")


def _sounds(text: str, start: int, end: int) -> Iterator[Span]:
    """Yield the runs of three or more characters that write sounds."""
    for match in _SOUNDS.finditer(text, start, end):
        yield match.span()


def _of_chunk(text: str, start: int, end: int, sure: Sequence[Span]) -> Iterator[Span]:
    for first, at, last in _ended(text, start, end):
        begin = next((s for s, e in sure if first <= s <= e <= at + 1 and at - e <= _GAP), first)
        if begin < at and 3 <= last - begin <= _LONGEST_HAN:
            yield begin, last
    if (text[start] in SURNAMES and end - start in (2, 3)) or (_GLOSS.match(text, end) and end - start <= _LONGEST_HAN):
        yield start, end


def _ended(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield where names with an ending start, where the ending starts, and where it stops."""
    first, at = start, start + 1
    while at < end:
        last = _ending_at(text, at, end)
        if last == at:
            at += 1
            continue
        while (further := _ending_at(text, last, end)) > last + 1:
            last = further
        yield first, at, last
        first, at = last, last + 1


_ENDINGS = _by_start(HAN_ENDINGS, 1)
_ENDING_WORDS = frozenset(HAN_ENDINGS)


def _ending_at(text: str, at: int, end: int) -> int:
    """Return where an ending that starts here stops; the same position if none does."""
    for ending in _ENDINGS.get(text[at : at + 1], ()):
        if text.startswith(ending, at) and at + len(ending) <= end:
            return at + len(ending)
    return end if at == end - 1 and text[at] in HAN_LAST else at


def _japanese(text: str) -> Iterator[Span]:
    units = [_NO_UNIT] * len(text)
    for match in _KANA_AND_HAN.finditer(text):
        start, end = match.span()
        if end - start < 2:
            continue
        units[start:end] = text[start:end]
        yield from _places_in(text, start, end, "ja")
        for katakana in _KATAKANA.finditer(text, start, end):
            yield katakana.span()
        for first, at, last in _ended(text, start, end):
            if first < at and last - first >= 3:
                yield first, last
        topic = opens_sentence(text, start) and text.startswith(("は", "が"), end) and end - start >= 3
        if topic or _GLOSS.match(text, end) or text.startswith(HAN_TITLES, end):
            yield start, end
    yield from _repeated("".join(units), (len(text), 3))


_THAI_RUN = re.compile("[\u0e00-\u0e7f]+")


def _thai(text: str) -> Iterator[Span]:
    cues = CUES["th"]
    cutting = _thai_separators()
    for run in _THAI_RUN.finditer(text):
        start, end = run.span()
        yield from _places_in(text, start, end, "th")
        for cue in sorted((*cues.before, *cues.ranks), key=lambda cue: (-len(cue), cue)):
            at = text.find(cue, start, end)
            while at >= 0:
                last = at + len(cue)
                while last < end and last - at < 40:
                    if last > at + len(cue) + 1 and any(text.startswith(w, last) for w in cutting.get(text[last], ())):
                        break
                    last += 1
                if last - at - len(cue) >= 3:
                    yield (at if cue in cues.before else at + len(cue)), last
                at = text.find(cue, max(last, at + 1), end)


@cache
def _thai_separators() -> dict[str, tuple[str, ...]]:
    return _by_start((word for word in function_words("th") if len(word) > 2), 1)


@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"[^\W\d_](?:[^\W\d_]|[{marks()}\u200c\u200d])*")


def _spaced(text: str, language: str) -> Iterator[Span]:
    """Yield the names in a text whose words have spaces between them."""
    cues = CUES.get(language, NameCues())
    known, common = places(language), function_words(language)
    no_units = common | cues.before | cues.ranks | cues.after | cues.titles
    letters: dict[str, str] = {}  # a character for each word
    units: list[str] = []
    where: list[Span] = []
    for clause in _CLAUSE.finditer(text):
        spans, names = [], []
        for match in _word().finditer(text, clause.start(), clause.end()):
            before, after = _affixes(match[0], cues, known, common)
            spans.append((match.start() + before, match.end() - after))
            names.append(text[slice(*spans[-1])])
        yield from _of_clause(text, spans, names, cues, known, common)
        for name in names:
            is_unit = len(name) > 1 and name not in no_units
            units.append(letters.setdefault(name, chr(len(letters) + 1)) if is_unit else _NO_UNIT)
        units.append(_NO_UNIT)
        where += [*spans, (0, 0)]
    for start, end in _repeated("".join(units), (3,)):
        yield where[start][0], where[end - 1][1]


def _affixes(word: str, cues: NameCues, known: frozenset[str], common: frozenset[str]) -> tuple[int, int]:
    """Return how many characters before and after the word do not belong to it."""
    if word in known or word in common:
        return 0, 0
    for particle in cues.particles:
        if word.endswith(particle) and len(word) - len(particle) >= 2:
            return 0, len(particle)
    for prefix in cues.prefixes:
        if word.startswith(prefix) and (word[len(prefix) :] in known or word[len(prefix) :] in common):
            return len(prefix), 0
    return 0, 0


def _of_clause(
    text: str,
    spans: Sequence[Span],
    names: Sequence[str],
    cues: NameCues,
    known: frozenset[str],
    common: frozenset[str],
) -> Iterator[Span]:
    def is_content(i: int) -> bool:
        return 0 <= i < len(names) and names[i] not in common and len(names[i]) > 1

    at = 0
    while at < len(names):
        width = next((n for n in (3, 2, 1) if " ".join(names[at : at + n]) in known and at + n <= len(names)), 0)
        if width:
            yield spans[at][0], spans[at + width - 1][1]
        name = names[at]
        if name in cues.before and is_content(at + 1):
            yield spans[at][0], spans[at + 1][1]
        if name in cues.ranks and is_content(at + 1):
            last = at + 2 if is_content(at + 2) and names[at + 2] not in cues.after else at + 1
            yield spans[at + 1][0], spans[last][1]
        if name in cues.after and at:
            first = at - 2 if at > 1 and names[at - 1] in cues.joining else at - 1
            if is_content(first):
                yield spans[first][0], spans[at][1]
        elif name in cues.joining and is_content(at - 1) and is_content(at + 1) and not cues.after:
            yield spans[at - 1][0], spans[at + 1][1]
        if name in cues.titles and is_content(at - 1):
            yield spans[at - 1]
        ends = any(name.endswith(ending) for ending in cues.endings) and len(name) > 2
        if ends and (name not in cues.endings or is_content(at - 1)):
            yield spans[at - 1 if name in cues.endings else at][0], spans[at][1]
        elif is_content(at) and _GLOSS.match(text, spans[at][1]):
            yield spans[at]
        at += max(width, 1)
