from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from indexmill.errors import ConfigurationError
from indexmill.models.embedder import HashEmbedder
from indexmill.store.canonical import content_id
from schemas.config import SplitSettings
from schemas.tables import LANGUAGES, PASSAGES, PLAIN, SENTENCES
from tasks.stages.split.split import TITLE_BYTES, embedded_text, split, title_prefix
from tasks.text.sentences import sentence_spans
from tests.deep import examples
from tests.tasks.tables import documents

EMBEDDER = HashEmbedder()
SMALL = SplitSettings(tokens=40)


def passages_of(text: str, settings: SplitSettings = SMALL, title: str = "") -> list[str]:
    texts: list[str] = split(documents(("d", title, text)), EMBEDDER, settings)[0]["text"].to_pylist()
    return texts


def words(count: int, word: str = "word") -> str:
    return " ".join([word] * (count - 1)) + " end."


def test_a_document_that_fits_stays_whole() -> None:
    text = "# Heading\n\nOne sentence. Another.\n\n# Second\n\nMore."
    passages, sentences, *_ = split(documents(("d", "Title", text)), EMBEDDER, SplitSettings())
    (tokens,) = EMBEDDER.count_tokens([embedded_text("Title", text)])
    (passage,) = passages.to_pylist()
    expected = (content_id("passage", "d", text, "0"), "d", 0, 0, len(text), text, tokens, "", "")
    assert tuple(passage.values()) == expected
    bounds = list(zip(sentences["start"].to_pylist(), sentences["end"].to_pylist(), strict=True))
    assert bounds == sentence_spans(text)
    assert sentences["ordinal"].to_pylist() == list(range(5))


def test_tables_have_their_schemas_and_the_order_of_the_documents() -> None:
    passages, sentences, *_ = split(
        documents(("b", "", "Beta."), ("a", "", words(50) + " Two."), ("c", "", " \n")), EMBEDDER, SMALL
    )
    assert passages.schema == PASSAGES
    assert sentences.schema == SENTENCES
    assert passages["document_id"].to_pylist() == ["b", "a", "a"]
    nothing = split(documents(), EMBEDDER, SMALL)
    assert [(table.num_rows, table.schema) for table in nothing] == [
        (0, PASSAGES),
        (0, SENTENCES),
        (0, PLAIN),
        (0, LANGUAGES),
    ]


def test_a_long_document_is_cut_before_a_heading_first() -> None:
    text = f"{words(15)} {words(9)}\n\n{words(5)}\n# Next\n{words(20)}\n\n{words(20)}"
    assert [passage.split()[0] for passage in passages_of(text)][:2] == ["word", "#"]


def test_then_between_paragraphs_then_between_sentences() -> None:
    first = f"{words(12)} {words(12)}"
    assert passages_of(f"{first}\n\n{words(8)} {words(30)}")[0] == first
    assert passages_of(f"{words(30)} {words(30)}") == [words(30), words(30)]


def test_a_sentence_longer_than_the_size_is_cut_between_words() -> None:
    pieces = passages_of("Indeed, " + words(100))
    assert len(pieces) > 2
    assert " ".join(pieces) == "Indeed, " + words(100)


def test_no_crumb_is_left_alone() -> None:
    pieces = passages_of(" ".join([words(6)] * 6))  # 42 tokens where 38 fit
    assert len(pieces) == 2
    assert min(map(len, pieces)) > 40


def test_the_title_counts_towards_the_size() -> None:
    text = " ".join([words(8)] * 8)
    title = " ".join(["title"] * 15)
    assert len(passages_of(text, title=title)) > len(passages_of(text))
    alone = SplitSettings(tokens=40, title_in_passage=False)
    assert passages_of(text, alone, title) == passages_of(text)


def test_overlap_repeats_whole_trailing_sentences() -> None:
    sentences = [f"Sentence number {number} stands here." for number in range(20)]
    pieces = passages_of(" ".join(sentences), SplitSettings(tokens=40, overlap=8))
    for before, after in pairwise(pieces):
        last = before[before.rindex("Sentence") :]
        assert after.startswith(last)
        assert after != last
    assert pieces[-1].endswith(sentences[-1])


def test_equal_pieces_of_a_document_have_ids_of_their_own() -> None:
    text = f"{words(30)}\n\n{words(30)}\n\n{words(30)}"
    ids = split(documents(("d", "", text)), EMBEDDER, SMALL)[0]["passage_id"].to_pylist()
    assert ids == [content_id("passage", "d", words(30), str(repeat)) for repeat in range(3)]


def test_a_passage_keeps_its_id_when_something_is_put_before_it() -> None:
    text = f"{words(30)}\n\n{words(30, 'other')}"
    before = split(documents(("d", "", text)), EMBEDDER, SMALL)[0]
    after = split(documents(("d", "", f"{words(35, 'new')}\n\n{text}")), EMBEDDER, SMALL)[0]
    assert set(before["passage_id"].to_pylist()) < set(after["passage_id"].to_pylist())


def test_a_long_title_is_cut_between_words() -> None:
    assert title_prefix("A title") == "A title\n"
    assert title_prefix("  ") == ""
    assert embedded_text("", "text") == "text"
    long = title_prefix("word " * 100)
    assert len(long) <= TITLE_BYTES + 1
    assert long.endswith("word\n")
    assert len(title_prefix("한" * 100).encode()) <= TITLE_BYTES + 1


PIECES = ["alpha ", "Beta. ", "\n\n", "\n", "# ", "- ", "```\n", "| ", "😀", "\x00", "\u200b", "한국어 ", "! "]
PIECES += ["x" * 130, " " * 120]
TITLES = ["", "Title", "한" * 80, "-" * 300, "word " * 60]


@examples(12, deep=60)
@given(
    st.lists(
        st.tuples(st.sampled_from(TITLES), st.lists(st.sampled_from(PIECES), max_size=250).map("".join)), max_size=3
    ),
    st.sampled_from([(16, 0), (40, 0), (256, 0), (64, 20)]),
)
def test_passages_cover_the_text_exactly_and_fit_the_embedder(
    rows: list[tuple[str, str]], size: tuple[int, int]
) -> None:
    chosen = SplitSettings(tokens=size[0], overlap=size[1], markup="none")
    given_rows = {f"d{number}": row for number, row in enumerate(rows)}
    whole = documents(*((identity, *row) for identity, row in given_rows.items()))
    passages, sentences, *_ = split(whole, EMBEDDER, chosen)
    covered = dict.fromkeys(given_rows, 0)
    texts: dict[str, str] = {}
    for row in passages.to_pylist():
        title, text = given_rows[row["document_id"]]
        assert text[row["start"] : row["end"]] == row["text"]
        assert row["tokens"] == EMBEDDER.count_tokens([embedded_text(title, row["text"])])[0] <= EMBEDDER.max_tokens
        assert not text[covered[row["document_id"]] : row["start"]].strip()
        covered[row["document_id"]] = max(covered[row["document_id"]], row["end"])
        assert row["passage_id"] not in texts
        texts[row["passage_id"]] = row["text"]
    for identity, (_, text) in given_rows.items():
        assert not text[covered[identity] :].strip()
    ends = dict.fromkeys(texts, 0)
    for row in sentences.to_pylist():
        text = texts[row["passage_id"]]
        assert ends[row["passage_id"]] <= row["start"] < row["end"] <= len(text)
        assert not text[ends[row["passage_id"]] : row["start"]].strip()
        ends[row["passage_id"]] = row["end"]
    assert ends == {identity: len(text) for identity, text in texts.items()}


@pytest.mark.slow
@pytest.mark.parametrize(
    "text", ["a" * 300_000, "word " * 60_000, "a" + " " * 300_000 + "b", "\x00" * 300_000, "한" * 100_000]
)
def test_a_huge_text_without_sentences_is_cut_too(text: str) -> None:
    passages, *_ = split(documents(("d", "", text)), EMBEDDER, SplitSettings())
    assert max(passages["tokens"].to_pylist()) <= 256
    assert max(map(len, passages["text"].to_pylist())) < 6000


class _Stubborn(HashEmbedder):
    """A tokenizer that makes more tokens of a piece than of the same characters in the whole text."""

    def token_offsets(self, texts: Sequence[str]) -> list[np.ndarray[tuple[int, ...], np.dtype[np.int32]]]:
        return [offsets[::3] for offsets in super().token_offsets(texts)]


def test_a_passage_that_turns_out_too_long_is_cut_again() -> None:
    passages, *_ = split(documents(("d", "T", " ".join([words(9)] * 60))), _Stubborn(), SMALL)
    assert max(passages["tokens"].to_pylist()) <= 40
    assert passages["start"].to_pylist() == sorted(passages["start"].to_pylist())


def test_settings_that_contradict_themselves_are_refused() -> None:
    with pytest.raises(ValidationError, match="greater than or equal to 16"):
        SplitSettings(tokens=8)
    with pytest.raises(ValidationError, match="overlap 50 is more than half"):
        SplitSettings(tokens=64, overlap=50)
    with pytest.raises(ConfigurationError, match="the embedder reads at most 256"):
        split(documents(), EMBEDDER, SplitSettings(tokens=300))
    with pytest.raises(ConfigurationError, match="splitting needs 128"):
        split(documents(), HashEmbedder(max_tokens=64), SplitSettings(tokens=32))


SEVEN = SplitSettings(tokens=60)


def above(text: str, title: str = "") -> list[tuple[str, str]]:
    """The embedded headings of each passage, and its first words."""
    passages, _, plain, _ = split(documents(("d.md", title, text)), EMBEDDER, SEVEN)
    (row,) = plain.to_pylist()
    starts = [row["text"][start:].split("\n")[0] for start in row["passage_starts"]]
    assert len(starts) == passages.num_rows
    return list(zip(row["headings"], starts, strict=True))


def test_a_table_that_is_cut_has_its_header_in_what_is_embedded() -> None:
    rows = "".join(f"| row {number} | {words(9)} |\n" for number in range(12))
    found = above(f"# Prices\n\n| Name | What it says |\n|---|---|\n{rows}")
    assert found[0] == ("", "Prices")
    assert len(found) > 2
    assert {headings for headings, _ in found[1:]} == {"Prices\nName | What it says"}
    assert all(first.startswith("row ") for _, first in found[1:])


def test_the_header_of_a_wide_table_keeps_its_first_columns() -> None:
    header = " | ".join(f"column {number}" for number in range(20))
    rows = f"| {' | '.join(['a value'] * 20)} |\n" * 4
    found = above(f"| {header} |\n|{'---|' * 20}\n{rows}")
    inside = {headings for headings, first in found if first.startswith("a value")}
    assert inside == {" | ".join(f"column {number}" for number in range(5))}


def test_a_list_that_is_cut_has_the_line_before_it_in_what_is_embedded() -> None:
    items = "".join(f"- item {number} {words(9)}\n" for number in range(12))
    text = f"{words(30)}\n\nOnce more. Mix these things:\n\n{items}\nAfter. {words(50)}"
    found = above(text)
    inside = [headings for headings, first in found if first.startswith("item")]
    assert len(inside) > 1
    assert set(inside) == {"Mix these things:"}
    assert found[-1][0] == ""
    passages: list[str] = split(documents(("d.md", "", text)), EMBEDDER, SEVEN)[0]["text"].to_pylist()
    assert next(passage for passage in passages if "these things" in passage).count("- item") > 0


def test_the_end_of_a_long_line_before_a_list_is_embedded() -> None:
    items = "".join(f"- item {number} {words(9)}\n" for number in range(12))
    found = above(f"{' '.join(['long'] * 40)} line:\n\n{items}")
    (lead,) = {headings for headings, first in found[1:] if first.startswith("item")}
    assert lead.endswith("long line:")
    assert 10 < len(lead.split()) <= 24


def test_functions_of_an_extracted_file_are_not_cut_in_the_middle() -> None:
    parts = [f"## `def f{number}`\n\n```python\ndef f{number}():\n{'    x = 1' * 3}\n```" for number in range(8)]
    table = documents(("a.py", "a.py", "\n\n".join(parts)))
    table = table.set_column(
        table.schema.get_field_index("metadata"), table.schema.field("metadata"), [['{"format":"python"}']]
    )
    passages = split(table, EMBEDDER, SEVEN).passages.to_pylist()
    assert len(passages) > 2
    assert all(passage["text"].startswith("## `def f") for passage in passages)
    assert passages[0]["section"] == "def f0"


def test_a_document_is_cut_into_sentences_by_the_rules_of_its_language() -> None:
    german = "Am 3. Mai 1920 kam Dr. Müller nach Berlin und blieb dort bis zum Herbst. Danach ging er nach Wien."
    passages, sentences, *_ = split(documents(("d", "", german)), EMBEDDER, SplitSettings())
    assert passages["language"].to_pylist() == ["de"]
    assert sentences["start"].to_pylist() == [0, german.index("Danach")]


def test_a_stated_language_stands_in_for_one_that_cannot_be_detected() -> None:
    def language(metadata: str) -> list[str]:
        table = documents(("a", "", "1234 Kosten"))
        at = table.schema.get_field_index("metadata")
        languages = split(table.set_column(at, table.schema.field(at), [[metadata]]), EMBEDDER, SMALL).languages
        return [str(language) for language in languages["language"].to_pylist()]

    assert language("{}") == language('{"language":"German"}') == language('{"language":[]}') == [""]
    assert language('{"language":"de-AT"}') == ["de"]


def test_the_format_of_metadata_and_the_name_together_make_markdown() -> None:
    def plain(name: str, metadata: str) -> int:
        table = documents((name, "", "A *b* c."))
        at = table.schema.get_field_index("metadata")
        return split(table.set_column(at, table.schema.field(at), [[metadata]]), EMBEDDER, SEVEN).plain.num_rows

    assert plain("a.ipynb", '{"format":"notebook"}') == 1
    assert plain("a.ipynb", "{}") == plain("a", '{"format":"notebook"}') == plain("a.ipynb", '{"format":"odd"}') == 0
    assert plain("a.ipynb", '{"format":["notebook"]}') == 0


PIECES = st.sampled_from(
    [
        "# Head\n",
        "Take these:\n",
        "\n",
        "- an item of a list\n",
        "  - deeper:\n",
        "    1. deepest\n",
        "| a | b |\n|---|---|\n",
        "| c c c | d d d |\n",
        "```py\n",
        "def f(x):\n",
        "    return x\n",
        "Some words of prose. And more.\n",
        "> quoted:\n",
    ]
)


@settings(max_examples=150, deadline=None)
@given(st.lists(PIECES, max_size=90), st.sampled_from(["", "Take these:", "A title"]), st.integers(0, 20))
def test_lists_tables_and_code_keep_every_word_in_order(pieces: list[str], title: str, overlap: int) -> None:
    text = "".join(pieces)
    chosen = SplitSettings(tokens=50, overlap=overlap)
    passages, sentences, plain, _ = split(documents(("d.md", title, text)), EMBEDDER, chosen)
    for passage in passages.to_pylist():
        assert passage["text"] == text[passage["start"] : passage["end"]]
        assert passage["tokens"] <= 50
    spans: dict[str, list[tuple[int, int]]] = {}
    for row in sentences.to_pylist():
        spans.setdefault(row["passage_id"], []).append((row["start"], row["end"]))
    for passage in passages.to_pylist():
        mine = spans[passage["passage_id"]]
        assert all(0 <= low < high <= len(passage["text"]) for low, high in mine)
    for row in plain.to_pylist():
        (counts,) = [
            EMBEDDER.count_tokens(
                [
                    embedded_text(title, row["text"][start:end], headings)
                    for start, end, headings in zip(
                        row["passage_starts"], row["passage_ends"], row["headings"], strict=True
                    )
                ]
            ).tolist()
        ]
        assert counts == passages["tokens"].to_pylist()
        covered = [False] * len(row["text"])
        for start, end in zip(row["passage_starts"], row["passage_ends"], strict=True):
            covered[start:end] = [True] * (end - start)
        assert not "".join(letter for letter, seen in zip(row["text"], covered, strict=True) if not seen).split()


@pytest.mark.parametrize("lead", ["## A heading", "Take these:"])
def test_no_passage_ends_with_a_heading_or_an_introduction(lead: str) -> None:
    items = "".join(f"- item {number} {words(9)}\n" for number in range(9))
    for before in range(5, 60):
        table = documents(("d.md", "", f"# First\n\n{words(before)}\n\n{lead}\n\n{items}"))
        passages = split(table, EMBEDDER, SEVEN).passages["text"].to_pylist()
        assert not [passage for passage in passages if passage.rstrip().endswith(lead)], before
