from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from indexmill.models.embedder import HashEmbedder
from indexmill.models.recogniser import RulesRecogniser
from schemas.config import SplitSettings
from schemas.tables import PLAIN, TITLE_SENTENCE
from tasks.stages.recognise.rules import recognise
from tasks.stages.split.plain import Plain
from tasks.stages.split.split import HEADING_BYTES, Split, embedded_text, split
from tests.deep import examples
from tests.tasks.tables import documents

EMBEDDER = HashEmbedder()
SMALL = SplitSettings(tokens=40, markup="markdown")
PAGE = """# Timers

Ada Lovelace wrote to **Charles [Babbage](/people/charles-babbage.md)** in London.

## How to set one

Call [SetTimer](/api/nf-winuser-settimer.md) first. The function SET\\_TIMER\\_EX is what Grace Hopper would call in
the New York office, and nobody else did so before. It was a long story that goes on for many more words.

### Notes

| Flag | Meaning |
|------|---------|
| WM\\_TIMER | sent by Alan Turing &amp; Co |
| WM\\_SIZE | sent by Kurt Goedel |
"""


def documents_of(*texts: str) -> pa.Table:
    return documents(*((f"d{number}", "Timers", text) for number, text in enumerate(texts)))


def made(*texts: str, settings: SplitSettings = SMALL) -> tuple[Split, Plain]:
    found = split(documents_of(*texts), EMBEDDER, settings)
    return found, Plain(found.plain, found.passages)


def test_passages_show_the_original_and_are_read_without_markup() -> None:
    found, plain = made(PAGE, "Plain words stay.")
    for row in found.passages.to_pylist():
        text = PAGE if row["document_id"] == "d0" else "Plain words stay."
        assert text[row["start"] : row["end"]] == row["text"]
    texts = plain.passages["text"].to_pylist()
    assert not any(mark in text for text in texts for mark in ("](", "**", "#", "\\", "&amp;", "|--"))
    assert texts[-1] == "Plain words stay."
    assert found.plain["document_id"].to_pylist() == ["d0"]
    assert found.plain.schema == PLAIN
    counted = [embedded_text("Timers", text, above) for text, above in zip(texts, plain.headings, strict=True)]
    assert EMBEDDER.count_tokens(counted).tolist() == found.passages["tokens"].to_pylist()


def test_passages_have_the_headings_above_them_and_the_words_of_their_links() -> None:
    _found, plain = made(PAGE)
    texts = plain.passages["text"].to_pylist()
    above = dict(zip(texts, plain.headings, strict=True))
    assert above[texts[0]] == ""  # it begins with the title, which is embedded anyway
    assert [above[text] for text in texts[1:]] == ["How to set one"] * 2
    assert all(len(headings.encode()) <= HEADING_BYTES for headings in plain.headings)
    assert "charles babbage" in plain.targets[0]
    assert sum("settimer" in words for words in plain.targets) == 1


def test_names_are_read_in_plain_text_and_placed_in_the_original() -> None:
    found, plain = made(PAGE, "Plain words of Alan Turing stay.")
    whole = plain.documents(documents_of(PAGE, "Plain words of Alan Turing stay."))
    read = recognise(whole, plain.passages, plain.to_plain(found.sentences), RulesRecogniser())
    placed = plain.to_original(read)
    assert plain.to_plain(placed).equals(read)
    texts = dict(zip(*(found.passages[name].to_pylist() for name in ("passage_id", "text")), strict=True))
    shown = {
        (row["surface"], texts[row["passage_id"]][row["start"] : row["end"]])
        for row in placed.to_pylist()
        if row["sentence"] != TITLE_SENTENCE
    }
    expected = {"Charles Babbage": "Charles [Babbage", "WM_TIMER": "WM\\_TIMER", "Alan Turing": "Alan Turing"}
    assert expected.items() <= shown


def test_without_markup_nothing_is_changed() -> None:
    found, plain = made("One sentence. Two.", settings=SplitSettings())
    assert found.plain.num_rows == 0
    assert plain.passages is found.passages
    assert plain.to_plain(found.sentences) is found.sentences
    assert plain.headings == plain.targets == [""]


_PIECES = [
    *("word ", "Name ", "One. ", "*b* ", "[x](y.md) ", "&lt;", "\\_", "\n\n", "\n", "# H\n\n", "## Two\n\n", "- "),
    *(
        "| a | b |\n",
        "|---|---|\n",
        "```\n",
        "<dl><dt>",
        "</dt>",
        "<td>",
        "<br>",
        "> ",
        "`c` ",
        "<!-- x -->",
        "한 ",
        "\xa0",
    ),
]


@examples(36, deep=150)
@given(
    st.lists(st.lists(st.sampled_from(_PIECES), max_size=120).map("".join), max_size=3),
    st.sampled_from(
        [SMALL, SplitSettings(markup="html", tokens=64), SplitSettings(tokens=64, overlap=20, markup="markdown")]
    ),
)
def test_sentences_are_the_same_in_both_texts(texts: list[str], chosen: SplitSettings) -> None:
    found, plain = made(*texts, settings=chosen)
    read = {row["passage_id"]: row for row in plain.passages.to_pylist()}
    shown = {row["passage_id"]: row for row in found.passages.to_pylist()}
    pairs = zip(found.sentences.to_pylist(), plain.to_plain(found.sentences).to_pylist(), strict=True)
    covered = dict.fromkeys(read, 0)
    for original, sentence in pairs:
        text = read[sentence["passage_id"]]["text"]
        words = text[sentence["start"] : sentence["end"]]
        assert words
        assert words == words.strip()
        assert not text[covered[sentence["passage_id"]] : sentence["start"]].strip()
        covered[sentence["passage_id"]] = sentence["end"]
        assert 0 <= original["start"] < original["end"] <= len(shown[sentence["passage_id"]]["text"])
    assert covered == {identity: len(row["text"]) for identity, row in read.items()}
    assert all(count <= EMBEDDER.max_tokens for count in found.passages["tokens"].to_pylist())
