"""Which written texts may be used."""

from __future__ import annotations

import pytest

from tasks.stages.write.usable import is_usable
from tasks.text.loops import loops

SOURCE = "The bridge of Vell was built in 1801 by Ada Marl, and painted again after the flood of 1866. " * 12
SUMMARY = (
    "Ada Marl built the bridge of Vell in 1801; it was painted again after the flood of 1866, as the texts say twelve "
    "times in nearly the same words."
)
CHINESE = (
    "维尔桥由艾达·马尔于1801年建造，1866年洪水后重新粉刷。桥长四百米，是当地最古老的石桥。今天它仍供行人使用，每年有数千人"
    "参观，春天尤其多，夏天也有人来，秋冬则较安静。人们常在桥上散步，孩子们在河边玩耍。"
)


@pytest.mark.parametrize(
    ("text", "usable"),
    [
        (SUMMARY, True),
        (CHINESE, True),
        ("Gannet's Tooth", False),
        ("", False),
        ("Ada Marl built the bridge of Vell. " * 8, False),
        ("King Philippe of France, " * 30, False),
        ("维尔桥由艾达建造。" * 20, False),
        (f"<text-1 0123> {SUMMARY}", False),
    ],
)
def test_a_text_is_long_enough_and_says_things_once(text: str, usable: bool) -> None:
    assert is_usable(text, [SOURCE], 75) == usable


def test_short_sources_may_have_short_texts() -> None:
    assert is_usable("A bridge.", ["The bridge of Vell was built in 1801 by Ada Marl."], 100)


def test_a_list_of_different_things_is_no_loop() -> None:
    assert not loops(" ".join(f"The bridge number {number} was built in {1800 + number}." for number in range(30)))
    assert not loops("no no no no no no")
