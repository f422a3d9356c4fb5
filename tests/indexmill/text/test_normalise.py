"""Normal forms are Unicode's, but for more marks in a row than any language writes."""

from __future__ import annotations

import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from indexmill.text.normalise import normalise
from indexmill.text.terms import Analyser


@given(st.text() | st.text("a\u0301\u0323\uff9e\u05b0─한é", max_size=30), st.sampled_from(["NFC", "NFKC", "NFKD"]))
def test_an_ordinary_text_has_its_normal_form(text: str, form: str) -> None:
    assert normalise(form, text) == unicodedata.normalize(form, text)  # type: ignore[arg-type]


def test_what_is_no_mark_may_be_repeated() -> None:
    for text in ("─" * 99, "😀" * 99, "…" * 99, "a\u0301" * 99, "\u0301" * 30):
        assert normalise("NFKD", text) == unicodedata.normalize("NFKD", text)


def test_more_than_thirty_marks_in_a_row_are_parted() -> None:
    found = normalise("NFKD", "a" + "\u0301\u0323" * 50)
    assert [len(run) for run in found[1:].split("\u034f")] == [30, 30, 30, 10]
    assert Analyser().terms("a" + "\u0301\u0323" * 50 + " b")[-1] == "b"
