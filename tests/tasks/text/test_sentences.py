from __future__ import annotations

import time

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tasks.text.sentences import HEADING, PARAGRAPH, segments, sentence_spans
from tests.deep import examples


def cut(text: str) -> list[str]:
    return [text[start:end] for start, end in sentence_spans(text)]


@pytest.mark.parametrize(
    "sentence",
    [
        "He met J. R. R. Tolkien in St. Mary's church c. 1143.",
        "The U.S. Army, i.e. the force, bought Acme Inc. for $3.5 bn.",
        'Dr. Smith vs. Mr. Jones (b. 1902, d. 1980) wrote e.g. "Hello there. How are you?" and left.',
        "George W. Bush and Robert F. Kennedy Jr. met.",
        "See vol. 3, No. 7 and Fig. 2.",
        "The film Who's Afraid of Virginia Woolf? was released.",
        "It cost £5.50 in version 2.0.1 of foo.bar.",
        "'Why?' asked Tom.",
    ],
)
def test_an_abbreviation_an_initial_or_a_quotation_does_not_end_a_sentence(sentence: str) -> None:
    text = f"It began here. {sentence} Then it ended."
    assert cut(text) == ["It began here.", sentence, "Then it ended."]


def test_sentences_end_at_full_stops_question_and_exclamation_marks() -> None:
    sentences = ["Is it?", "Yes!", "He lived in the U.S.", "He died in Washington, D.C. in 1950.", '"What?"', '"No."']
    assert cut(" ".join(sentences)) == sentences


def test_text_without_capitals_is_cut_too() -> None:
    assert cut("hello there. how are you. fine.") == ["hello there.", "how are you.", "fine."]


def test_other_scripts() -> None:
    assert cut("今日は。元気ですか？はい！") == ["今日は。", "元気ですか？", "はい！"]
    assert cut("Это мост. Он старый.") == ["Это мост.", "Он старый."]


MARKDOWN = """\
Intro line one
goes on here. Second sentence.

# A heading. With a stop
Text after it.
- first item. More of it
- second item
  goes on
1. third

```c
int a; b = c. D;
call(); Other. Thing
```

| a. B | c |
|------|---|

Title
=====

    indented. Code
    line two

End."""


def test_markdown_lines_begin_and_end_sentences() -> None:
    assert cut(MARKDOWN) == [
        "Intro line one\ngoes on here.",
        "Second sentence.",
        "# A heading. With a stop",
        "Text after it.",
        "- first item.",
        "More of it",
        "- second item\n  goes on",
        "1. third",
        "```c\nint a; b = c. D;\ncall(); Other. Thing\n```",
        "| a. B | c |",
        "|------|---|",
        "Title\n=====",
        "indented. Code\n    line two",
        "End.",
    ]


def test_breaks_are_stronger_before_headings_and_paragraphs() -> None:
    strengths = {MARKDOWN[start:end].split()[0]: strength for start, end, strength in segments(MARKDOWN)}
    assert strengths["#"] == strengths["Title"] == HEADING + 5
    assert strengths["Intro"] == strengths["End."] == strengths["```c"] == PARAGRAPH
    assert strengths["Second"] < strengths["Text"] < PARAGRAPH


def test_a_long_block_of_code_is_cut_between_lines() -> None:
    line = "value = compute. Other(1); // note. Here\n"
    pieces = cut("```\n" + line * 40 + "```")
    assert 3 < len(pieces) < 10
    assert all(piece.splitlines()[-1] in (line.strip(), "```") for piece in pieces)


def test_a_sentence_across_windows_is_not_cut() -> None:
    sentence = "A sentence of some length stands here for good. "
    assert set(cut(sentence * 400)) == {sentence.strip()}


PIECES = ["\n", " ", ". ", "? ", "```\n", "~~~\n", "# ", "- ", "1. ", "| ", "===\n", "    ", "\r\n", "e.g. ", "。", '"']


@examples(30, deep=150)
@given(st.lists(st.sampled_from(PIECES) | st.text(max_size=6), max_size=40).map("".join))
@example("a\ud800b. C")
@example("\x00. \u2028 \u200b")
def test_spans_cover_what_is_not_blank_in_order(text: str) -> None:
    last = 0
    for start, end in sentence_spans(text):
        assert last <= start < end <= len(text)
        assert not text[last:start].strip()
        assert text[start:end] == text[start:end].strip()
        last = end
    assert not text[last:].strip()


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a" * 500_000, "今日は。元気" * 60_000, "wörd " * 100_000, "a\n==\n" * 50_000, "\n" * 300_000]
)
def test_time_grows_with_the_length(text: str) -> None:
    begin = time.process_time()
    spans = sentence_spans(text)
    assert time.process_time() - begin < 10
    assert all(end - start <= 5000 for start, end in spans)


def test_spaces_end_the_sentences_of_thai() -> None:
    clause = "กรุงเทพมหานครเป็นเมืองหลวงและนครที่มีประชากรมากที่สุดของประเทศไทย"
    text = " ".join([clause] * 5)
    spans = sentence_spans(text, "th")
    assert [text[start:end].count(" ") for start, end in spans] == [1, 1, 0]
    assert sentence_spans(clause * 5, "th") == [(0, len(clause) * 5)]
    assert sentence_spans(text, "en") == [(0, len(text))]
