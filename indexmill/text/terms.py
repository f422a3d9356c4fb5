"""Terms: the words under which a text is indexed, for passages and questions in any script.

- *Folding.* Compatibility forms (NFKC), case, the accents of Latin, Greek and Cyrillic letters and the vowel points of
  Hebrew and Arabic are folded (``Régis`` = ``REGIS``); marks that belong to the spelling, as in Devanagari, are kept.
- *Words* are runs of letters, digits and marks, without a possessive (``Lothair's`` = ``Lothair``).
- *Compounds.* Words joined by ``_ . - ' ::``, or by a change to upper case, are indexed by each part and as a whole:
  ``read_parquet``, ``--dry-run``, ``node.js``, ``HTMLParser``. Dotted initials lose their dots (``U.S.`` = ``US``),
  the whole has no apostrophes (``O'Brien`` = ``OBrien``), and ``C++`` and ``C#`` differ from ``C``.
- *Stems.* A word is cut to its stem by the Snowball project's algorithm for the language of its passage
  (``Brücken`` = ``Brücke``); by the English one, Porter 2, for ASCII letters in any other language (``bridges`` =
  ``bridge``, ``resized`` = ``resizing``). Stems of different languages are different terms, except English ones, so a
  word of a question, which has a stem in every language of the corpus, matches those of the passage's language alone.
- *Scripts without spaces* between words (Chinese, Japanese, Thai, ...; and Korean, for its particles): every character
  and every pair of neighbours is a term.
"""

from __future__ import annotations

import hashlib
import itertools
import re
import threading
from collections.abc import Iterable, Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt
import Stemmer

from indexmill.text.normalise import ACCENTS, INVISIBLE, marks, normalise

UNSPACED = (
    "\u0e00-\u0eff\u1000-\u109f\u1100-\u11ff\u1780-\u17ff\u2e80-\u2fdf\u3005-\u3007\u3021-\u3029\u3040-\u30ff"
    "\u3100-\u318f\u31a0-\u31bf\u31f0-\u31ff\u3400-\u4dbf\u4e00-\u9fff\ua960-\ua97f\uaa60-\uaa7f\uac00-\ud7ff"
    "\uf900-\ufaff\U00016fe0-\U00018d0f\U0001aff0-\U0001b2ff\U00020000-\U0003ffff"
)
"""Characters of scripts without spaces between words, and of Korean, as the content of a regular expression's class."""

_RUNS = re.compile(f"[{UNSPACED}]+|[^{UNSPACED}]+")
_POSSESSIVE = re.compile("['\u2019][sS]$")
_APOSTROPHES = re.compile("['\u2019]")
_UNSPACED_RUN = re.compile(f"[{UNSPACED}]")
_CAPITALS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z]{2})")
_SIGNS = ("++", "#")
_SHORT = 32
"""The maximum length of a token that is cached beyond its shard."""
_ENGLISH = "english"
_ALGORITHMS = """ar:arabic ca:catalan cs:czech da:danish de:german el:greek en:english eo:esperanto es:spanish
et:estonian eu:basque fa:persian fi:finnish fr:french ga:irish hi:hindi hu:hungarian hy:armenian id:indonesian
it:italian lt:lithuanian nb:norwegian ne:nepali nl:dutch nn:norwegian no:norwegian pl:polish pt:portuguese ro:romanian
ru:russian sr:serbian sv:swedish ta:tamil tr:turkish"""

_STEMMERS = dict(pair.split(":") for pair in _ALGORITHMS.split())

_LINKS = {
    "danish": ("", "e", "s"),
    "dutch": ("", "e", "en", "s"),
    "german": ("", "e", "en", "er", "es", "n", "s"),
    "norwegian": ("", "e", "s"),
    "swedish": ("", "e", "o", "s", "u"),
}
"""The letters that join the parts of a compound, by stemming algorithm."""

_LEAST_PART = 4
"""The minimum length of a part of a compound."""

_LONGEST_COMPOUND = 64
"""The maximum length of a word that is cut: the time to cut one grows with its square."""

_OF_LANGUAGE = "\0"  # stands between an algorithm's name and a stem

_LEAST_PROSE = 4
_LEAST_STEMMED = 4
"""The minimum length of a word that is stemmed: shorter words are often acronyms."""


def stemmer_of(language: str) -> str:
    """Return the name of the stemming algorithm for a language; the English one for languages without an algorithm."""
    return _STEMMERS.get(language, _ENGLISH)


class Analyser:
    """Finds the terms of texts. Caches tokens, which speeds up the texts of one shard.

    stemmers: the algorithms (``stemmer_of``); with several, a word has the stems of each.
    """

    def __init__(self, stemmers: Sequence[str] = (_ENGLISH,)) -> None:
        self._stemmers = stemmers
        self._cache: dict[str, tuple[str, ...]] = {}

    def terms(self, text: str) -> list[str]:
        """Return the terms of a text in order, with repetitions."""
        cache = self._cache
        return [
            term for token in _tokens(text) for term in cache.get(token) or cache.setdefault(token, self._terms(token))
        ]

    def words(self, text: str) -> dict[str, str]:
        """Return the terms of a text, each with a word for display: the first word with that stem."""
        words: dict[str, str] = {}
        for token in _tokens(text):
            for stemmer in self._stemmers:
                terms = _terms_of(token, stemmer)
                for term in terms:
                    words.setdefault(term, _fold(token) if len(terms) == 1 else stem_of(term))
        return words

    def _terms(self, token: str) -> tuple[str, ...]:
        """Return the terms of a token by the first algorithm, then those that only others find."""
        first, *others = (_terms_of(token, stemmer) for stemmer in self._stemmers)
        more = dict.fromkeys(term for terms in others for term in terms if term not in first)
        return (*first, *more)


def term_keys(terms: Iterable[str]) -> npt.NDArray[np.uint64]:
    """Return the keys of terms, ``(n_terms,) uint64``: the first eight bytes of each term's SHA-256."""
    sha256 = hashlib.sha256
    digests = b"".join([sha256(term.encode("utf-8", "surrogatepass")).digest() for term in terms])
    return np.frombuffer(digests, dtype=">u8")[::4].astype(np.uint64)


def prose_words(text: str) -> list[str]:
    """Return the words of four or more characters that have no capital: no names, numbers, acronyms or identifiers.

    In a script without spaces between words, a word is a run of two or more letters.
    """
    return [token for token in _tokens(text) if _is_prose(token)]


def _is_prose(token: str) -> bool:
    if len(token) < (2 if is_unspaced(token) else _LEAST_PROSE) or token != token.lower():
        return False
    # A word with marks, as in Hindi, is not alphabetic to Python.
    return token.isalpha() or not (
        token.isascii() or any(map(str.isdigit, token)) or not _patterns(True)[1].fullmatch(token)
    )


def compound_cuts(text: str, stemmers: Sequence[str]) -> Iterator[tuple[str, list[tuple[str, str]]]]:
    """Yield the term of each word that may be a compound, with the terms of the two parts at each place to cut it.

    Danish, Dutch, German, Norwegian and Swedish write compounds without a space, some with a linking letter:
    ``Versicherung|s|prämie``. stemmers: the algorithms of the corpus; other languages yield nothing.
    """
    compounding = [stemmer for stemmer in stemmers if stemmer in _LINKS]
    for token in _tokens(text) if compounding else ():
        for word in map(_fold, _patterns(not token.isascii())[1].findall(token)):
            if not 2 * _LEAST_PART <= len(word) <= _LONGEST_COMPOUND or not word.isalpha() or is_unspaced(word):
                continue
            for stemmer in compounding:
                places = [
                    (end, start)
                    for start in range(_LEAST_PART, len(word) - _LEAST_PART + 1)
                    for link in _LINKS[stemmer]
                    if (end := start - len(link)) >= _LEAST_PART and word.endswith(link, end, start)
                ]
                pairs = [(_stem(word[:end], stemmer), _stem(word[start:], stemmer)) for end, start in places]
                yield _stem(word, stemmer), pairs


def stem_of(term: str) -> str:
    """Return the stem in a term, without the name of its algorithm."""
    return term.rpartition(_OF_LANGUAGE)[2]


def is_unspaced(word: str) -> bool:
    """Return True for a word of a script without spaces between words, by its first character."""
    return bool(_UNSPACED_RUN.match(word))


def _tokens(text: str) -> list[str]:
    if text.isascii():
        return _patterns(False)[0].findall(text)
    return _patterns(True)[0].findall(normalise("NFKC", INVISIBLE.sub("", text)))


@lru_cache(maxsize=2)
def _patterns(marked: bool) -> tuple[re.Pattern[str], re.Pattern[str]]:
    """Compile the patterns of a token and of the words in it. marked: True to accept combining marks within a word."""
    word = r"[^\W_]+"
    if marked:
        word = rf"[^\W_]+(?:[{marks()}]+[^\W_]+)*[{marks()}]*"
    return re.compile(rf"{word}(?:(?:_+|::|[.\-'\u2010\u2019]){word})*(?:(?:\+\+|#)(?![\w+#]))?"), re.compile(word)


def _terms_of(token: str, stemmer: str) -> tuple[str, ...]:
    """Return the terms of one token: its parts in order, then the whole if it differs."""
    return _remembered(token, stemmer) if len(token) <= _SHORT else _split(token, stemmer)


@lru_cache(maxsize=1 << 16)
def _remembered(token: str, stemmer: str) -> tuple[str, ...]:
    """Return the terms of one token, cached for the process, since shards share most of their words."""
    return _split(token, stemmer)


def _split(token: str, stemmer: str) -> tuple[str, ...]:
    token = _POSSESSIVE.sub("", token)
    words = _patterns(not token.isascii())[1].findall(token)
    parts = [part for word in words for part in _CAPITALS.split(word)]
    terms = [piece for part in parts for piece in _pieces(_fold(part), stemmer)]
    if len(parts) == 1 and not token.endswith(_SIGNS):
        return tuple(terms)
    whole = _fold(_APOSTROPHES.sub("", token)).replace("\u2010", "-")
    if all(len(word) == 1 and word.isalpha() for word in words):
        whole = whole.replace(".", "")
    return (*terms, whole)


def _pieces(word: str, stemmer: str) -> list[str]:
    """Return the stem of a folded word, or, in a script without spaces, its characters and pairs of neighbours."""
    if word.isascii():
        return [_stem(word, stemmer)] if word else []
    pieces: list[str] = []
    for run in _RUNS.findall(word):
        if _UNSPACED_RUN.match(run):
            pieces += [*run, *map("".join, itertools.pairwise(run))]
        else:
            pieces.append(run if run.isascii() else _stem(run, stemmer))
    return pieces


class _Stemmers(threading.local):
    """The stemmers of a thread by algorithm, since two threads must not share one."""

    def __init__(self) -> None:
        self.by_name: dict[str, Any] = {}

    def stem(self, word: str, name: str) -> str:
        stemmer = self.by_name.get(name)
        if stemmer is None:
            stemmer = self.by_name[name] = Stemmer.Stemmer(name, 0)  # without its cache: tokens are cached above
        stem: str = stemmer.stemWord(word)
        return stem


_stemmers = _Stemmers()


def _stem(word: str, stemmer: str) -> str:
    """Return the stem of a folded word, after the algorithm's name unless that is English, which is for ASCII alone.

    Short words, English function words and words with digits stay unchanged: they are the same in every language.
    """
    if len(word) < _LEAST_STEMMED or word in COMMON or any(map(str.isdigit, word)):
        return word
    if stemmer == _ENGLISH:
        return _stemmers.stem(word, stemmer) if word.isascii() else word
    return f"{stemmer}{_OF_LANGUAGE}{_stemmers.stem(word, stemmer)}"


def _fold(text: str) -> str:
    if text.isascii():
        return text.lower()
    text = normalise("NFKD", text).casefold()
    return normalise("NFKC", ACCENTS.sub("", normalise("NFKD", text)))


_COMMON = """a an and are as at be but by did do does for from had has have he her his how i in is it its of on or she
that the their them they this to was were what when where which who whom whose why will with"""

COMMON = frozenset(_COMMON.split())
"""English function words, as terms: common in questions, and in almost every passage."""
