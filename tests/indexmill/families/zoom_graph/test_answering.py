"""What a model reads of zoom_graph's hits: the sentences that the second stage keeps."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import indexmill
from indexmill.answer.answer_types import AnswerOptions, context_tokens
from indexmill.answer.answers import answering_of, contexts_of
from indexmill.command import main
from indexmill.command.model import answering_settings
from indexmill.errors import BadInput
from indexmill.families.zoom_graph.answering import GAP, KeptSentences, kept_text
from indexmill.hits import Hit
from tests.corpora import documents
from tests.indexmill.families.zoom_graph.test_search import built

TEXT = "Ada Venn was a clockmaker.  She was born in Tallow, in the year of the flood.\nShe paid for a bridge."
FIRST, SECOND, THIRD = (
    "Ada Venn was a clockmaker.",
    "She was born in Tallow, in the year of the flood.",
    "She paid for a bridge.",
)


def hit(*sentences: str, text: str = TEXT, tokens: int | None = 30) -> Hit:
    said = [{"text": one, "score": 0.1} for one in sentences]
    return Hit("passage", "p", 0.5, text, "Ada Venn", ("venn",), tokens, None, {"dense": False, "sentences": said})


@pytest.mark.parametrize(
    ("sentences", "read"),
    [
        ((FIRST, SECOND, THIRD), TEXT),
        ((FIRST, THIRD), f"{FIRST} {GAP} {THIRD}"),
        ((SECOND,), f"{GAP} {SECOND} {GAP}"),
        ((FIRST, SECOND), f"{FIRST}  {SECOND} {GAP}"),
        ((), TEXT),
        (("of another text",), TEXT),
    ],
)
def test_sentences_stand_in_order_with_gaps_marked(sentences: tuple[str, ...], read: str) -> None:
    assert kept_text(hit(*sentences)) == read


def test_a_gap_shorter_than_its_mark_is_read() -> None:
    assert kept_text(hit("One two.", "Three.", text="One two. A. Three.")) == "One two. A. Three."


@given(st.lists(st.tuples(st.sampled_from(["a", "bb", "long long sentence", "é"]), st.booleans()), max_size=8))
def test_what_is_read_holds_every_kept_sentence_and_no_more_than_the_text(some: list[tuple[str, bool]]) -> None:
    text = " ".join(f"{word}{i}." for i, (word, _) in enumerate(some))
    kept = [f"{word}{i}." for i, (word, own) in enumerate(some) if own]
    read = kept_text(hit(*kept, text=text))
    assert len(read) <= len(text)
    assert all(one in read for one in kept)
    if read != text:
        assert read.replace(GAP, " ").split() == " ".join(kept).split()


def test_tokens_are_those_that_are_read() -> None:
    way = KeptSentences()
    assert way.uses_explanations
    whole, part = hit(FIRST, SECOND, THIRD), hit(FIRST)
    assert way.tokens(whole) == context_tokens(whole) == 30
    share = len(f"{FIRST} {GAP}") / len(TEXT)
    assert 30 * share <= way.tokens(part) < 30 * share + 1
    assert way.shown(part) == f"Ada Venn\n\n{FIRST} {GAP}"
    assert way.tokens(hit(text="", tokens=0)) == 0


def test_whole_passages_are_read_where_that_is_asked_for() -> None:
    way = KeptSentences({"read": "passage"})
    assert not way.uses_explanations
    assert (way.tokens(hit(FIRST)), way.shown(hit(FIRST))) == (30, f"Ada Venn\n\n{TEXT}")
    with pytest.raises(BadInput, match=r"answering=: read is 'all'"):
        KeptSentences({"read": "all"})
    with pytest.raises(BadInput, match="answering=: unknown 'reads'; the method's parameters are read"):
        KeptSentences({"reads": "kept"})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return built(tmp_path_factory.mktemp("kept"), documents(20, words=90))


def test_zoom_graph_answers_from_kept_sentences_and_cites_passages(store: Path) -> None:
    with indexmill.open(store) as snapshot:
        documents = snapshot.table("documents", ["document_id", "title", "text"]).sort_by("document_id")
        row = documents.to_pylist()[4]
        question = f"Who met {row['title']}? {row['text'][:60]}"
        options = AnswerOptions(method="zoom_graph", k=5)
        way = answering_of(options)
        assert isinstance(way, KeptSentences)
        (hits,) = contexts_of(snapshot, [question], way, options)
        plain = snapshot.retrieve(question, method="zoom_graph", k=5)
        assert [one.text for one in hits] == [one.text for one in plain]
        request = way.request(question, hits, 100)
        shortened = [one for one in hits if GAP in way.shown(one)]
        assert shortened
        for one in shortened:
            assert way.shown(one) in request.content
            assert one.text not in request.content
        read = sum(way.tokens(one) for one in hits)
        assert read < sum(context_tokens(one) for one in hits)
        assert contexts_of(snapshot, [question], way, replace(options, token_budget=read)) == [hits]


def test_the_command_reads_whole_passages_where_that_is_asked_for(capsys: pytest.CaptureFixture[str]) -> None:
    given = {"level_tokens": None, "direct": False, "whole_passages": True}
    assert answering_settings(["zoom_graph", "dense"], given) == {"zoom_graph": {"read": "passage"}}
    assert main(["answer", "x", "--method", "dense", "--whole-passages", "--store", "nowhere"]) == 2
    capsys.readouterr()
    with pytest.raises(BadInput, match="--whole-passages: dense does not accept that; add --method zoom_graph"):
        answering_settings(["dense"], given)
