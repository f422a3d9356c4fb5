"""Names and terms in scripts without capitals, without a model: by places, cues, sounds, glosses and repetition.

A name is here: a place that CLDR lists; words beside a cue, such as *river* or *president* (`name_cues`), or Chinese
characters with an ending such as *university*; Chinese characters that write the sounds of a foreign name; a word that
a gloss in brackets follows. A term is a run of words that the text repeats in different surroundings. In Chinese and
Thai, function words part the names.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from functools import cache
from itertools import combinations

from indexmill.models.recogniser import Mention, opens_sentence
from indexmill.text.normalise import marks
from indexmill.text.terms import UNSPACED
from tasks.stages.recognise.name_cues import cues_of
from tasks.text.lexicon import (
    Span,
    WordsByStart,
    function_words,
    length_at,
    place_at,
    places,
    places_in,
    words_by_start,
)

CASELESS = frozenset(
    "am ar as bn bo dz fa gu he hi ja km kn ko lo ml mr my ne or pa ps sd si ta te th ug ur zh".split()  # noqa: SIM905
)
"""The languages whose scripts have no capitals."""

_SCOPE = 20_000
"""The maximum number of characters that are searched for repeated words together: whole paragraphs, if they fit."""

_UNSPACED_LANGUAGES = frozenset(["bo", "dz", "km", "lo", "my", "th"])

_LONGEST_HAN = 12
"""The maximum number of Chinese characters of a name."""
_LONGEST_UNSPACED = 40
"""The maximum number of characters of a name in other scripts without spaces, with its cue."""
_GAP = 4
"""The maximum number of characters between a place, or the sounds of a name, and the ending of the same name."""
_LONGEST_RUN = 8
"""The maximum number of words, or of Chinese characters, of a repeated name."""
_NO_UNIT = "\0"

_HAN = "\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff々〆ヶ"
_HAN_RUN = re.compile(f"[{_HAN}]+")
_HAN_OR_KATAKANA_RUN = re.compile(f"[\u30a1-\u30ff{_HAN}]+")
_KATAKANA = re.compile("[\u30a1-\u30fa][\u30a1-\u30ff]{1,29}(?:[・＝][\u30a1-\u30ff]{1,30}){0,4}")
_TWO_KATAKANA = re.compile("[\u30a1-\u30ff]{2}")
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]+")
_GLOSS = re.compile(r"\s?[（(]\s?[A-Za-zÀ-ɏ]")
_BRACKETED = re.compile("([《「『][^《》「」『』\n]{1,60}[》」』])")
_QUOTED = re.compile('(?<![א-ת])["“„«](?=\\S)([^"“”„«»，。！？,!?\n]{2,30})["”»](?![א-ת])')
_MOST_QUOTED = 5  # words
_UNSPACED = re.compile(f"[{UNSPACED}]")
_PIECE = re.compile(rf".{{1,{_SCOPE}}}(?:\n|\Z)|.{{{_SCOPE}}}", re.DOTALL)
_CLAUSE = re.compile(r"[^\n.!?;:,()\[\]{}\"“”«»،؛؟।。、，；：！？（）…|]+")


def without_words(text: str) -> str:
    """Replace letters of scripts without spaces, except in brackets, so that other letters are words of their own."""
    parts = _BRACKETED.split(text)
    return "".join(part if i % 2 else _UNSPACED.sub("|", part) for i, part in enumerate(parts))


def names_in(text: str, language: str) -> Iterator[Mention]:
    """Yield the names and the quoted titles in a text of a language in `CASELESS`; some of them more than once."""
    for match in _QUOTED.finditer(text):
        if len(match[1].split()) <= _MOST_QUOTED:
            yield Mention("text", *match.span(1), "work")
    for piece in _PIECE.finditer(text):
        if language == "zh":
            names, terms = _chinese(piece[0])
        elif language == "ja":
            names, terms = _japanese(piece[0])
        elif language in _UNSPACED_LANGUAGES:
            names, terms = _unspaced(piece[0], language), []
        else:
            names, terms = _spaced(piece[0], language)
        at = piece.start()
        yield from (Mention("text", at + start, at + end, "name") for start, end in names)
        yield from (Mention("text", at + start, at + end, "term") for start, end in terms)


NamesAndTerms = tuple[list[Span], list[Span]]


def _repeated(units: str, least: Sequence[int]) -> Iterator[Span]:
    """Yield the longest runs of units that occur twice or more beside different neighbours.

    units: a character for each word or character of the text; _NO_UNIT where no run may go on. least: the minimum
    number of occurrences of a run of one unit, of two, and so on; two for longer ones.
    """
    repeated: list[dict[str, list[int]]] = []
    starts = [i for i, unit in enumerate(units) if unit != _NO_UNIT]
    while starts and len(repeated) < _LONGEST_RUN:
        length = len(repeated) + 1
        runs: dict[str, list[int]] = defaultdict(list)
        for start in starts:
            if _NO_UNIT not in (run := units[start : start + length]) and len(run) == length:
                runs[run].append(start)
        repeated.append({run: starts for run, starts in runs.items() if len(starts) > 1})
        starts = sorted(start for starts in repeated[-1].values() for start in starts)
    inside: Counter[str] = Counter()  # how often a run occurs within a longer name
    bounded = f"{_NO_UNIT}{units}{_NO_UNIT}"
    for length in range(len(repeated), 0, -1):
        for run, starts in repeated[length - 1].items():
            neighbours = [[bounded[at] for at in starts], [bounded[at + length + 1] for at in starts]]
            varied = all(len(set(beside)) > 1 or beside[0] == _NO_UNIT for beside in neighbours)
            if varied and len(starts) > inside[run]:
                for first, last in combinations(range(length + 1), 2):
                    inside[run[first:last]] = max(inside[run[first:last]], len(starts))
                if length > len(least) or len(starts) >= least[length - 1]:
                    yield from ((start, start + length) for start in starts)


# --- Chinese and Japanese --------------------------------------------------------------------------------------------


def _chinese(text: str) -> NamesAndTerms:
    names: list[Span] = []
    units = [_NO_UNIT] * len(text)
    for run in _HAN_RUN.finditer(text):
        sure = _sure(text, *run.span())
        names += sure
        for start, end in _chunks(text, *run.span(), sure):
            units[start:end] = text[start:end]
            names += _of_chinese_chunk(text, start, end, sure)
    repeated = _repeated("".join(units), (len(text) + 1, 3))
    return names, [span for span in repeated if text[slice(*span)] not in cues_of("han").endings]


def _sure(text: str, start: int, end: int) -> list[Span]:
    """Return the places, and the sounds of foreign names, in a run of Chinese characters.

    A place that shares characters with another word, as 海地 does with 地区 in 沿海地区, is none.
    """
    within: set[int] = set()  # positions within a word
    for at in range(start, end):
        length = max(_length_of_ending(text, at, end), _length_of_separator(text, at, end))
        within.update(range(at + 1, at + length))
    spans = []
    at = start
    while at < end:
        length = place_at("zh", text, at, end)
        if at in within or at + length in within:
            length = 0
        if not length and (sounds := _sounds().match(text, at, end)):
            length = sounds.end() - at
        if length:
            spans.append((at, at + length))
        at += length or 1
    return spans


@cache
def _sounds() -> re.Pattern[str]:
    return re.compile(f"[{''.join(sorted(cues_of('han').sounds))}]{{3,{_LONGEST_HAN}}}")


def _chunks(text: str, start: int, end: int, sure: Sequence[Span]) -> Iterator[Span]:
    """Yield the pieces of a run of Chinese characters between function words, which are part of no sure name."""
    is_sure = {at for first, last in sure for at in range(first, last)}
    first = at = start
    while at < end:
        ending, separator = _length_of_ending(text, at, end), _length_of_separator(text, at, end)
        if at in is_sure or (separator > 1 and _length_of_ending(text, at + separator, end)):
            at += 1
        elif ending > 1:  # 共和国
            at += ending
        elif separator:
            if at - first > 1:
                yield first, at
            at = first = at + separator
        else:
            at += 1
    if end - first > 1:
        yield first, end


@cache
def _separators() -> WordsByStart:
    common = (word for word in function_words("zh") if len(word) > 1 and _HAN_RUN.fullmatch(word))
    return words_by_start([*cues_of("han").separators, *common], 1)


def _length_of_separator(text: str, at: int, end: int) -> int:
    return length_at(_separators().get(text[at], ()), text, at, end)


def _of_chinese_chunk(text: str, start: int, end: int, sure: Sequence[Span]) -> Iterator[Span]:
    for first, ending, last in _ended(text, start, end):
        near = (begin for begin, stop in sure if first <= begin <= stop <= ending + 1 and ending - stop <= _GAP)
        begin = next(near, first)
        if begin + 2 <= ending and last - begin <= _LONGEST_HAN:
            yield begin, last
    is_person = text[start] in cues_of("han").surnames and end - start in (2, 3)
    if is_person or (_GLOSS.match(text, end) and end - start <= _LONGEST_HAN):
        yield start, end


def _ended(text: str, start: int, end: int) -> Iterator[tuple[int, int, int]]:
    """Yield the names with an ending: where the name starts, where the ending starts, and where both end."""
    first, at = start, start + 1
    while at < end:
        length = _length_of_ending(text, at, end)
        if not length:
            at += 1
            continue
        last = at + length
        while (more := _length_of_ending(text, last, end)) > 1:  # 帝国 + 大学
            last += more
        yield first, at, last
        first, at = last, last + 1


@cache
def _endings() -> WordsByStart:
    return words_by_start(cues_of("han").endings, 1)


def _length_of_ending(text: str, at: int, end: int) -> int:
    length = length_at(_endings().get(text[at : at + 1], ()), text, at, end)
    return length or int(at == end - 1 and text[at] in cues_of("han").last)


def _japanese(text: str) -> NamesAndTerms:
    names = [match.span() for match in _KATAKANA.finditer(text)]
    units = [_NO_UNIT] * len(text)
    for run in _HAN_OR_KATAKANA_RUN.finditer(text):
        start, end = run.span()
        units[start:end] = run[0]
        names += (place for place in places_in("ja", text, start, end) if not _continues_katakana(text, *place))
        names += ((first, last) for first, ending, last in _ended(text, start, end) if first + 2 <= ending)
        title = next((len(title) for title in cues_of("han").titles if text.endswith(title, start, end)), 0)
        is_topic = opens_sentence(text, start) and text.startswith(("は", "が"), end)
        if title and 2 <= end - start - title <= 4:
            names.append((start, end - title))
        elif (end - start > 2 and is_topic) or text.startswith("さん", end) or _GLOSS.match(text, end):
            names.append((start, end))
    return names, list(_repeated("".join(units), (len(text) + 1, 3)))


def _continues_katakana(text: str, start: int, end: int) -> bool:
    """Return True if a place is a part of a longer word in katakana, as タイ is of タイトル."""
    return any(at > 0 and _TWO_KATAKANA.match(text, at - 1) for at in (start, end))


# --- other scripts without spaces ------------------------------------------------------------------------------------


@cache
def _separators_of(language: str) -> WordsByStart:
    return words_by_start((word for word in function_words(language) if len(word) > 2), 1)


def _unspaced(text: str, language: str) -> list[Span]:
    """Return the places, and the names from a cue to the next space or function word."""
    names: list[Span] = []
    before, ranks = cues_of(language).before, cues_of(language).ranks
    cues, separators = words_by_start([*before, *ranks], 1), _separators_of(language)
    for run in _UNSPACED_RUN.finditer(text):
        at, end = run.span()
        names += places_in(language, text, at, end)
        while at < end:
            cue = length_at(cues.get(text[at], ()), text, at, end)
            if not cue or (text[at : at + cue] in ranks and at > run.start()):
                at += 1
                continue
            last = name = at + cue
            while last < min(end, at + _LONGEST_UNSPACED) and (
                last < name + 2 or not length_at(separators.get(text[last], ()), text, last, end)
            ):
                last += 1
            if last - name > 2:
                names.append((at if text[at:name] in before else name, last))
            at = last
    return names


# --- scripts with spaces ---------------------------------------------------------------------------------------------


@cache
def _word() -> re.Pattern[str]:
    return re.compile(rf"[^\W\d_](?:[^\W\d_]|[{marks()}\u200c\u200d])*")


def _spaced(text: str, language: str) -> NamesAndTerms:
    """Return the names and terms of a text that has spaces between words, without prefixes and particles."""
    names: list[Span] = []
    words = _words(language)
    letters: dict[str, str] = {}  # a character for each word
    units: list[str] = []
    unit_spans: list[Span] = []
    for clause in _CLAUSE.finditer(text):
        spans = [words.trimmed(match) for match in _word().finditer(text, *clause.span())]
        of_clause = [text[start:end] for start, end in spans]
        names += ((spans[first][0], spans[last][1]) for first, last in words.names(of_clause))
        for word, (start, end) in zip(of_clause, spans, strict=True):
            if words.is_content(word) and _GLOSS.match(text, end):
                names.append((start, end))
            is_unit = words.is_content(word) and word not in words.cue_words
            units.append(letters.setdefault(word, chr(len(letters) + 1)) if is_unit else _NO_UNIT)
        units.append(_NO_UNIT)
        unit_spans += [*spans, (0, 0)]
    repeated = _repeated("".join(units), (3,))
    return names, [(unit_spans[first][0], unit_spans[last - 1][1]) for first, last in repeated]


@cache
def _words(language: str) -> _Words:
    return _Words(language)


class _Words:
    """The words of a language with spaces between them."""

    def __init__(self, language: str) -> None:
        self.cues = cues = cues_of(language)
        self.places, self.common = places(language), function_words(language)
        self.cue_words = cues.before | cues.ranks | cues.after | cues.titles
        self.endings = tuple(cues.endings)
        self.prefixes, self.particles = (
            sorted(part, key=len, reverse=True) for part in (cues.prefixes, cues.particles)
        )

    def is_content(self, word: str) -> bool:
        return len(word) > 1 and word not in self.common

    def trimmed(self, match: re.Match[str]) -> Span:
        """Return the span of a word without a prefix or a particle."""
        word, (start, end) = match[0], match.span()
        if word in self.places or word in self.common:
            return start, end
        for particle in self.particles:
            if word.endswith(particle) and len(word) - len(particle) > 1:
                return start, end - len(particle)
        for prefix in self.prefixes:
            rest = word.removeprefix(prefix)
            if rest != word and (rest in self.places or rest in self.common):
                return start + len(prefix), end
        return start, end

    def names(self, words: Sequence[str]) -> Iterator[tuple[int, int]]:
        """Yield the positions of the first and of the last word of each name in a clause, except repeated ones."""
        cues, content = self.cues, [False, *map(self.is_content, words), False, False]
        for at, word in enumerate(words):
            before, after = content[at], content[at + 2]
            width = next((n for n in (3, 2, 1) if " ".join(words[at : at + n]) in self.places), 0)
            if width:
                yield at, min(at + width, len(words)) - 1
            if word in cues.before and after:
                yield at, at + 1
            if word in cues.ranks and after:
                yield at + 1, at + 1 + (content[at + 3] and words[at + 2] not in cues.after)
            if word in cues.titles and before:
                yield at - 1, at - 1
            if word in cues.joining and before and after and not cues.after:
                yield at - 1, at + 1
            if word in cues.after and at:
                first = at - 2 if at > 1 and words[at - 1] in cues.joining else at - 1
                if self.is_content(words[first]):
                    yield first, at
            if len(word) > 2 and word.endswith(self.endings):
                if word not in cues.endings:
                    yield at, at
                elif before:
                    yield at - 1, at
