"""What the shared options understand."""

from __future__ import annotations

import click
import pytest
from hypothesis import given
from hypothesis import strategies as st

from indexmill.command.options import Duration, parameters_by_method
from indexmill.errors import BadInput
from indexmill.text.printable import one_line
from indexmill.text.text_table import table


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90s", 90), ("90m", 5_400), ("26h", 93_600), ("2d", 172_800), ("1w", 604_800), ("1d12h", 129_600), ("0h", 0)],
)
def test_a_duration_is_in_seconds(text: str, seconds: float) -> None:
    assert Duration().convert(text, None, None) == seconds
    assert Duration().convert(f" {text.upper()} ", None, None) == seconds
    assert Duration().convert(seconds, None, None) == seconds


def test_a_duration_may_have_a_fraction() -> None:
    assert Duration().convert("1.5h", None, None) == 5_400


@pytest.mark.parametrize(
    "text", ["", "26", "h", "-1h", "1 h", "1h 2m", "2y", "1e3s", "inf", "\u0661h", "9" * 400 + "h"]
)
def test_what_is_no_duration_is_refused_with_an_example(text: str) -> None:
    with pytest.raises(click.BadParameter, match="write 90m, 26h, 2d or 1d12h"):
        Duration().convert(text, None, None)


@given(st.lists(st.tuples(st.integers(0, 999), st.sampled_from("smhdw")), min_size=1, max_size=4))
def test_pieces_add_up(pieces: list[tuple[int, str]]) -> None:
    one = [Duration().convert(f"{number}{unit}", None, None) for number, unit in pieces]
    assert Duration().convert("".join(f"{number}{unit}" for number, unit in pieces), None, None) == sum(one)


@pytest.mark.parametrize(
    ("setting", "value"),
    [
        ("a=0.85", 0.85),
        ("a = 3", 3),
        ("a=1e-3", 0.001),
        ("a=.5", 0.5),
        ("a=true", True),
        ("a=False", False),
        ("a=null", None),
        ("a=~", None),
        ("a=max", "max"),
        ('a="3"', "3"),
        ("a=b=c", "b=c"),
        ("a=[1]", "[1]"),
    ],
)
def test_a_setting_is_a_scalar(setting: str, value: object) -> None:
    found = parameters_by_method([setting], ["dense"])["dense"]["a"]
    assert (found, type(found)) == (value, type(value))


def test_a_dotted_setting_names_its_method_and_a_plain_one_is_of_the_only_one() -> None:
    both = ["tri_graph", "fused"]
    assert parameters_by_method([], both) == {}
    assert parameters_by_method(["tri_graph.damping=1", "fused.pool=9", "fused.tri_graph.hops=2"], both) == {
        "tri_graph": {"damping": 1},
        "fused": {"pool": 9, "tri_graph.hops": 2},
    }
    assert parameters_by_method(["tri_graph.damping=1", "pool=9"], ["fused"]) == {
        "fused": {"tri_graph.damping": 1, "pool": 9}
    }
    assert parameters_by_method(["pool=8", "pool=9"], ["fused"]) == {"fused": {"pool": 9}}
    for wrong in ("damping=1", "bm25.k1=1"):
        with pytest.raises(BadInput, match=r"name the method, such as tri_graph.*there are tri_graph, fused"):
            parameters_by_method([wrong], both)
    for wrong in ("damping", "=1"):
        with pytest.raises(BadInput, match="expected a name and a value"):
            parameters_by_method([wrong], ["fused"])


ODD = "a\r\nb\tc\u2028d\x85e\x1b[2Jf\u202eg\x0bh\rz"
"""An id with everything in it that ends a line or that a terminal obeys."""


def test_an_odd_cell_takes_one_line_and_moves_no_column() -> None:
    first, *rows = table(["document", "rows"], [[ODD, 7], ["b", 12]]).splitlines()
    assert rows == ["a b c d e\ufffd[2Jf\ufffdg h z     7", "b                       12"]
    assert first == "document              rows"


@given(st.text())
def test_one_line_is_one_line_and_leaves_plain_text_alone(text: str) -> None:
    line = one_line(text)
    assert len(line.splitlines()) <= 1
    assert "\t" not in line
    assert one_line(line) == line
    assert text != " ".join(text.split()) or not text.isprintable() or line == text
