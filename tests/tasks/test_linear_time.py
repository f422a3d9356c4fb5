"""Whatever a text holds, the time that it takes grows with its length and not with the square of it.

Each case makes a text four times longer until it takes long enough to be measured, in CPU time, which other processes
do not add to: the last step may take twice what four times the length would. More may be one step, where the shorter
text fitted into memory at hand; so a text four times longer again has to take as much more, too, if that takes seconds.
"""

from __future__ import annotations

import contextlib
import gc
import itertools
import time
from collections.abc import Callable
from functools import partial

import pytest

from indexmill.errors import BadInput
from indexmill.models import readable
from indexmill.models.embedder import HashEmbedder
from indexmill.models.llm import Completion
from indexmill.models.recogniser import RulesRecogniser, question_runs
from indexmill.retrieve.filters import Filter
from indexmill.text.canonical_names import canonical_words
from indexmill.text.terms import Analyser, prose_words
from schemas.config import SplitSettings
from schemas.corpus import FieldNames
from tasks.stages.extract.extraction_tables import MentionTexts
from tasks.stages.extract.extractive import extract_all
from tasks.stages.ingest.documents import SourceRow, document_of
from tasks.stages.ingest.formats import front_matter, notebook, title_filter
from tasks.stages.recognise.names_by_language import RulesByLanguage
from tasks.stages.recognise.rules import recognise
from tasks.stages.recognise.subjects import subjects_of
from tasks.stages.split.split import split
from tasks.text.markup import guess, link_words, visible
from tasks.text.sentences import segments
from tests.deep import share
from tests.tasks.tables import documents

SIZES = [4**power for power in range(5, 11)]  # 1,024 to 1,048,576 characters
LONG_ENOUGH = 0.06  # seconds


def _split(text: str, markup: str) -> None:
    whole = documents(("a", "The Bridge", text))
    made = split(whole, HashEmbedder(), SplitSettings(markup=markup))  # type: ignore[arg-type]
    if markup == "none":
        mentions = recognise(whole, made.passages, made.sentences, RulesRecogniser())
        extract_all(MentionTexts(whole, made.passages, made.sentences, mentions))


def _subjects(text: str) -> None:
    subjects_of("The Bridge", text, RulesRecogniser().recognise("The Bridge", text))


def _names(language: str, text: str) -> None:
    RulesByLanguage().recognise("", text, language)


def _answer(text: str) -> None:
    with pytest.raises(readable.BadAnswer):
        readable.value_of(Completion(text=text, model="", finish_reason="stop", input_tokens=0, output_tokens=0))


def _filter(text: str) -> None:
    with contextlib.suppress(BadInput):
        Filter.of(text)


FUNCTIONS: dict[str, Callable[[str], object]] = {
    "the first heading": title_filter.first_heading,
    "a title": lambda text: title_filter.title_of(text, stated=True),
    "a text": lambda text: document_of(SourceRow(1, {"id": "a", "text": text}), FieldNames(), 1 << 30),
    "what a notebook printed": notebook._plain,
    "front matter": lambda text: front_matter.split_front_matter(f"---\n{text}"),
    "lines of front matter": front_matter.looks_like_yaml,
    "broken front matter": lambda text: front_matter.read_front_matter(f"---\n: [{text}\n---\n"),
    "guess": guess,
    "link words": link_words,
    "Markdown": lambda text: visible(text, "markdown"),
    "HTML": lambda text: visible(text, "html"),
    "sentences": segments,
    "words of prose": prose_words,
    "names": lambda text: RulesRecogniser().recognise("", text),
    **{f"names ({language})": partial(_names, language) for language in ("ar", "de", "ja", "th", "tr", "zh")},
    "subjects": _subjects,
    "terms": lambda text: Analyser().terms(text),  # a new analyser has an empty cache
    "words": canonical_words,
    "passages of Markdown": lambda text: _split(text, "markdown"),
    "passages and their extraction": lambda text: _split(text, "none"),
    "a question": question_runs,
    "an answer": _answer,
    "a filter": _filter,
}

MARKUP = [
    *(
        "[",
        "*",
        "_a",
        "<",
        "](",
        "[a](",
        "`",
        "`` ` ",
        "<!--",
        "&",
        "> ",
        "- ",
        '<a b="',
        "<a ",
        "[a][",
        "<script>",
        "|",
    ),
    *("a|\n|-|\n", "![", "\\", "<td>", "[a](<", "~~~\n", "<?", "<![CDATA[", "[x]: y\n", "[[a]](x)"),
]
# What was quadratic once, and marks of markup: a function, and the beginning, the unit and the end of the text.
KNOWN = [
    ("the first heading", "# a", " ", "x"),
    ("a title", "a", "{#a ", "x"),
    ("a title", "a", "{.", "x"),
    ("a text", "\u200c", "\u200d\u200b", "x"),
    ("broken front matter", "", "a:\n", ""),
    ("what a notebook printed", "a\r", "x", ""),
    ("Markdown", "[a](", " ", "x"),
    ("Markdown", "[a](b", " ", "x"),
    ("Markdown", "", "[a](b)<p>", ""),
    ("sentences", "a\nb\n", "=\n", ""),
    ("subjects", "Foo,", " ", "x"),
    ("terms", "a", "\u0301\u0323", ""),
    ("terms", "a", "\u0301\uff9e", ""),
    ("words", "a", "\u0301\u0323", ""),
    ("an answer", "```", " ", "x"),
    ("an answer", "```\n", " ", "x"),
    ("an answer", "", "```json\nx```y\n", "x"),
    ("a filter", "a", " ", "x"),
    ("a filter", "a=", "b,", "c"),
    *((name, "", unit, "") for name in ("Markdown", "HTML", "guess") for unit in MARKUP),
]

UNITS = [
    *" \t\n\r\f\"'#_~]()>!-=+:;,./@09aAé中ア한{}$?…。\u00a0\u2028\u200d\u0301\u0660😀",
    *("\r\n", "\u0301\u0323", "a\u0301", "ab ", "a\n", "a\n\n", "\n \n", "a  \n", "  a\n", "    a\n", "\ta\n", "\\\n"),
    *("\\*", *MARKUP),
    *("[](", "[a](b ", "[[", "]]", "](\\)", "[a]: b\n", "[a]: b '\n", "[a]:\n"),
    *("* ", "*a ", "*a*", "**a", "_a_", "`a", "``a", "```\n", "```a\n", "# ", "# a\n", "###### a\n"),
    *("a\n=\n", "===\n", "---\n", "- a\n", "> a\n", "1. ", "1. a\n", "| a", "|a|\n", "|-|-|\n", "| - "),
    *('<a href="', "<a b='", "<a>", "</a>", "<p>", "<div>", "<!-- -->"),
    *("<li>", "<br>", "&amp;", "&#", "&a", "<http://", "<a@b", "http://", "a@", "a.b@", "{{", "{%", "a: b\n"),
    *("a.", "A.", "A. ", "A.B.", "Mr. ", "vol. 3 ", "The ", "Foo ", "Foo, ", "of the ", "Foo of the ", "January "),
    *(
        "1 January ",
        "1,",
        "1,000 ",
        "1990 ",
        '"A',
        '"A" ',
        "“A",
        "《a",
        "'s",
        "Foo's ",
        "Foo-",
        "a_b",
        "a::b",
        "aB",
        "AbCd",
    ),
    *(
        "国",
        "的国",
        "大学",
        "阿国",
        "アイ",
        "夏は",
        "เมือง",
        "เมืองใน",
        "مدينة ",
        "مدينة و ",
        "İa'da ",
        "Der Bonn ",
        "von der Firma ",
    ),
    *("x()", "--a ", "0x", "a.b.c", "a. ", "a! ", "a? A", "Foo (", "((", "is ", "Foo is ", " ,", "Foo known as "),
]
BEGINNINGS = ["", "a", "# a", "Foo,", "[a](b", "```\n", "<!--", "- ", "> ", "|a|b|\n|-|-|\n|"]


def cpu_seconds(function: Callable[[str], object], text: str) -> float:
    gc.disable()
    try:
        began = time.process_time()
        function(text)
        return time.process_time() - began
    finally:
        gc.enable()


def grows_faster_than_the_text(function: Callable[[str], object], beginning: str, unit: str, end: str) -> str:
    """What was measured where the time grew too fast, else nothing."""

    def text_of(size: int) -> str:
        return beginning + unit * (size // len(unit)) + end

    before = 0.0
    for size in SIZES:
        text = text_of(size)
        took = cpu_seconds(function, text)
        if before and took > LONG_ENOUGH:
            least = 8 * max(before, LONG_ENOUGH / 32)
            if took > least and (again := min(cpu_seconds(function, text) for _ in range(3))) > least:
                if again < 1.0 and cpu_seconds(function, text_of(4 * size)) <= 8 * again:
                    return ""
                return f"{size:,} characters: {min(took, again):.2f} s, a fourth of them: {before:.2f} s"
            return ""
        before = took
    return ""


@pytest.mark.slow
@pytest.mark.parametrize(("name", "beginning", "unit", "end"), KNOWN)
def test_what_was_quadratic_is_linear(name: str, beginning: str, unit: str, end: str) -> None:
    assert not grows_faster_than_the_text(FUNCTIONS[name], beginning, unit, end)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", FUNCTIONS)
def test_no_repeated_text_takes_more_than_linear_time(name: str) -> None:
    found = {
        (beginning, unit): said
        for unit, beginning in share(list(itertools.product(UNITS, BEGINNINGS)), 54, list(FUNCTIONS).index(name))
        if (said := grows_faster_than_the_text(FUNCTIONS[name], beginning, unit, "x"))
    }
    assert not found
