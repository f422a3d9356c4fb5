"""Summaries of the texts' own sentences, and the prompts that a folder replaces."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from indexmill.errors import ConfigurationError
from tasks.core.shards import estimate_tokens
from tasks.llm.prompts import prompt
from tasks.stages.write.summarise import Extractive
from tests.corpora import documents
from tests.deep import examples

TEXTS = [f"{title}\n{text}" for title, text in documents(10, words=120).values()]
LAMP = [
    "Lamps\nThe brass lamp of Tarrow was lit by Ada Marl in 1802. It rained a lot that year in the hills.",
    "Ada Marl\nAda Marl kept the brass lamp of Tarrow for thirty years. Her cousin sold apples and pears.",
    "Tarrow\nThe brass lamp of Tarrow stands on the hill above the town. Goats graze there on most mornings.",
]


def test_what_the_texts_share_comes_first_and_once() -> None:
    summary = Extractive(20).summary(LAMP)
    assert "brass lamp" in summary
    assert not any(word in summary for word in ("apples", "Goats", "rained"))
    long = Extractive(400).summary(LAMP)  # with room for all, every text is in it, in order
    assert [long.index(word) for word in ("rained", "apples", "Goats")] == sorted(
        long.index(word) for word in ("rained", "apples", "Goats")
    )


def test_a_sentence_is_told_with_the_title_that_it_leaves_out() -> None:
    summary = Extractive(400).summary(LAMP)
    assert "Lamps: It rained a lot" in summary
    assert "Ada Marl: Her cousin sold apples" in summary
    assert "Ada Marl: Ada Marl" not in summary
    assert "Tarrow: The brass lamp of Tarrow" not in summary


def test_the_same_said_twice_is_told_once() -> None:
    assert Extractive(400).summary(["The brass lamp was lit by Ada Marl.", "The brass lamp was lit by Ada Marl."]) == (
        "The brass lamp was lit by Ada Marl."
    )


@pytest.mark.parametrize("tokens", [16, 100, 400])
def test_a_summary_has_about_the_tokens_asked_for(tokens: int) -> None:
    length = estimate_tokens(len(Extractive(tokens).summary(TEXTS).encode()))
    assert tokens / 2 <= length <= tokens + 40


@examples(20, deep=100)
@given(st.lists(st.text(max_size=300), min_size=1, max_size=5), st.sampled_from([16, 100]))
@example(["0\r0\n0"], 16)
def test_any_texts_have_a_bounded_summary_on_one_line(texts: list[str], tokens: int) -> None:
    texts = [text.encode("utf-8", "ignore").decode() for text in texts]
    summary = Extractive(tokens).summary(texts)
    assert len(summary.encode()) <= 8 * tokens
    assert bool(summary) == any(text.split() for text in texts)
    assert summary == " ".join(summary.split())


def test_a_summary_depends_on_its_texts_alone() -> None:
    warm = Extractive(100)
    for first in range(3):
        warm.summary(TEXTS[first::3])
    assert warm.summary(TEXTS) == Extractive(100).summary(TEXTS)


def test_a_script_without_spaces_has_a_summary_too() -> None:
    texts = ["甲乙丙丁的桥在一八〇二年建成。河水很深。", "甲乙丙丁的桥很有名。人们喜欢它。"]
    assert "桥" in Extractive(30).summary(texts)


def test_a_folder_replaces_a_prompt_and_its_version(tmp_path: Path) -> None:
    text, version = prompt("summary")
    assert prompt("summary", tmp_path) == (text, version)
    (tmp_path / "summary.md").write_text("Summarise.")
    assert prompt("summary", tmp_path)[0] == "Summarise."
    assert prompt("summary", tmp_path)[1] != version
    (tmp_path / "summary.md").write_text(" \n")
    with pytest.raises(ConfigurationError, match="is empty"):
        prompt("summary", tmp_path)
    with pytest.raises(ConfigurationError, match="not a folder"):
        prompt("summary", tmp_path / "nowhere")
