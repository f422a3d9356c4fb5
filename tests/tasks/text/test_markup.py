from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.text.markup import Visible, guess, link_words, markup_of, visible
from tasks.text.sentences import HEADING, INTRODUCED, ITEM, JOINED, PARAGRAPH, segments

PAGE = """# Window\\_Size

Sent **after** a [window's size](/api/wm-size#now "why") &amp; *place* changed<br/>by `SetPos *x*` <!-- no -->.

| Name | Value |
|------|:-----:|
| `A\\|B` | [one](x.md) |

<dl> <dt>

[First](a.md)
</dt> <dt>

Second
</dt> </dl>

## See also

- ![alt text](i.png)
- > quoted [ref][r]

```c
int x; // [not](a link)
    y
```

[r]: http://example.org
"""


def read(text: str, markup: str = "markdown") -> Visible:
    found = visible(text, markup)  # type: ignore[arg-type]
    assert found is not None
    return found


def plain(text: str, markup: str = "markdown") -> str:
    return read(text, markup).text


def test_a_reader_sees_words_and_no_markup() -> None:
    assert plain(PAGE) == (
        "Window_Size\n\n"
        "Sent after a window's size & place changed by SetPos *x* .\n\n"
        "Name | Value\n"
        "A\\|B | one\n\n"
        "First\n\n"
        "Second\n\n"
        "See also\n\n"
        "alt text\n"
        "quoted ref\n\n"
        "int x; // [not](a link)\n    y"
    )


def test_blocks_know_what_they_are() -> None:
    found = read(PAGE)
    headings = [(found.text[start:end], level) for start, end, level in found.headings]
    assert headings == [("Window_Size", 1), ("See also", 2)]
    strengths = {found.text[start:end]: strength for start, end, strength, is_prose in found.blocks if not is_prose}
    expected = {"Window_Size": HEADING + 5, "See also": HEADING + 4, "Name | Value": PARAGRAPH, "A\\|B | one": ITEM}
    assert expected.items() <= strengths.items()
    assert [target for _, target in found.targets] == ["/api/wm-size#now", "x.md", "a.md"]


def test_sentences_are_those_of_the_blocks() -> None:
    found = read("# One. Two.\n\nThree. *Four.*\n\n| a. b. | c |\n|-|-|\n")
    spans = [found.text[start:end] for start, end, _ in segments(found.text, "en", found.blocks)]
    assert spans == ["One. Two.", "Three.", "Four.", "a. b. | c"]


def test_an_entity_at_the_end_is_whole_in_the_original() -> None:
    text = "*Fish* &amp;"
    assert read(text).originals([(5, 6)]) == [(7, 12)]


def test_spans_are_found_in_the_original() -> None:
    found = read(PAGE)
    for words, original in (
        ("Window_Size", "Window\\_Size"),
        ("window's size &", 'window\'s size](/api/wm-size#now "why") &amp;'),
        ("SetPos *x*", "SetPos *x*"),
        ("A\\|B | one", "A\\|B` | [one"),
    ):
        start = found.text.index(words)
        ((low, high),) = found.originals([(start, start + len(words))])
        assert PAGE[low:high] == original
    start = found.text.index("int x")
    low, high = found.bounds(start, len(found.text))
    assert PAGE[low:high].startswith("```c\nint x")
    assert PAGE[low:high].endswith("y\n```")


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a*b* _c_ d_e_f **g** * h", "ab c d_e_f g * h"),
        ("**[x](y) z**.", "x z."),
        ("[a [b](c) d](e)", "[a b d](e)"),
        ("[![alt](i)](t) [x] [y](", "alt [x] [y]("),
        ("`` a ` b `` ` c", "a ` b ` c"),
        ("<https://a.b/c> <x@y.z> <not a tag &copy; &nosuch;", "https://a.b/c x@y.z <not a tag © &nosuch;"),
        ("one\n> two *a\n> b*\n\n1. three\n   four", "one\ntwo a\nb\n\nthree\nfour"),
        ("Title\n=====\n\nText\\\nmore", "Title\n\nText\nmore"),
        ("a <b>c</b><!-- d\n\ne -->f", "a c<!-- d\n\ne -->f"),
        ("x\r\n\r\n*y*\r\n", "x\n\ny"),
    ],
)
def test_what_stands_within_a_block(text: str, words: str) -> None:
    assert plain(text) == words


def test_html_is_read_by_its_tags() -> None:
    text = (
        "<html><head><style>p {}</style></head><body><h1>A &lt; B</h1><p>One\n  two <b>three</b>.</p>"
        "<ul><li>x</li><li>y</li></ul><table><tr><th>N</th><th>V</th></tr><tr><td>1</td><td>2</td></tr></table>"
        "<script>no()</script></body></html>"
    )
    found = read(text, "html")
    assert found.text == "A < B\n\nOne two three.\n\nx\ny\n\nN | V\n1 | 2"
    assert [found.text[start:end] for start, end, _ in found.headings] == ["A < B"]


@pytest.mark.parametrize("text", ["", " \n", "Plain words.\n\nAnd more of them.", "x < y & z"])
def test_text_without_markup_is_read_as_it_is(text: str) -> None:
    assert visible(text, "markdown") is None
    assert visible(text, "html") is None
    assert visible("*a* [b](c)", "none") is None


_PIECES = st.sampled_from(
    [
        *(
            "[",
            "]",
            "](",
            ")",
            "(",
            "*",
            "**",
            "_",
            "`",
            "``",
            "\n",
            "\n\n",
            "# ",
            "- ",
            "> ",
            "1. ",
            "    ",
            "\t",
            "|",
        ),
        *("|-|-|\n", "<", ">", "<b>", "</b>", "<td>", "<tr>", "</p>", "<!--", "-->", "&amp;", "&NotEqualTilde;", "\\"),
        *("!", "```\n", "word", " ", "é", "한", "[x]: y\n", "\r\n", "\r", "\x0c", "\u2028", "\xa0", "==\n", "\x00"),
        *("<pre>", "<h2>", "</h2>"),
    ]
)


@settings(max_examples=400)
@given(st.lists(_PIECES, max_size=60).map("".join), st.sampled_from(["markdown", "html"]))
def test_every_character_has_its_place(text: str, markup: str) -> None:
    found = visible(text, markup)  # type: ignore[arg-type]
    if found is None or not found.text:
        return
    assert (np.diff(found.starts) > 0).all()
    assert found.starts[0] == 0
    assert (np.diff(found.origins) >= 0).all()
    assert (found.ends >= found.origins).all()
    assert (found.ends <= len(text)).all()
    lengths = np.diff([*found.starts.tolist(), len(found.text)])
    for start, origin, end, length in zip(found.starts, found.origins, found.ends, lengths, strict=True):
        words = found.text[start : start + length]
        if end - origin == length and words.strip(" |\n"):
            assert text[origin:end].split() == words.split() or length == 1
    last = last_outer = 0
    for (start, end, _, _), (low, high) in zip(found.blocks, found.outer, strict=True):
        assert last <= start < end
        assert found.text[start:end].strip() == found.text[start:end]
        assert not found.text[last:start].strip()
        ((begin, stop),) = found.originals([(start, end)])
        assert last_outer <= low <= begin < stop <= high <= len(text)
        last, last_outer = end, high
    assert last == len(found.text)


@pytest.mark.parametrize(
    ("text", "markup"),
    [
        ("A sentence [1](a footnote). Another * with # marks_and_more.", "none"),
        ("# of items: 3\nC# and x[i](y) are code; 2 * 3 * 4", "none"),
        ('The <a href="Greek">Greek</a> letter <a href="x">delta</a>.', "none"),
        ("# One\n\nText\n\n# Two", "none"),
        ("# One\n\nSee **this**.", "markdown"),
        ("See [one](./a.md) and [two](https://b.c/d).", "markdown"),
        ("<!DOCTYPE html><p>x</p>", "html"),
        ("<p>one</p><p>two</p>", "html"),
    ],
)
def test_a_guess_is_on_the_safe_side(text: str, markup: str) -> None:
    assert guess(text) == markup
    assert markup_of("auto", "id", None, text) == markup


def test_the_kind_of_a_file_and_the_configuration_come_before_the_guess() -> None:
    assert markup_of("auto", "d", "notes/a.MD", "words") == "markdown"
    assert markup_of("auto", "win32/a.md", None, "words") == "markdown"
    assert markup_of("none", "a.md", "a.md", PAGE) == "none"
    assert markup_of("html", "a.md", None, PAGE) == "html"


def test_links_give_the_words_of_their_targets() -> None:
    assert link_words("../api/nf-winuser-settimer.md#remarks") == "nf winuser settimer"
    assert link_words("/windows/win32/") == "win32"
    assert link_words("#here") == ""


def breaks(text: str) -> list[tuple[str, int]]:
    """The first word of each block with the strength of the break before it."""
    seen = read(text)
    return [(seen.text[block.start : block.end].split()[0], block.strength) for block in seen.blocks]


def leads(text: str) -> list[tuple[str, str]]:
    """What is introduced, by the words that introduce it."""
    seen = read(text)
    return [(seen.text[one.start : one.end], seen.text[one.end : one.stop].strip()) for one in seen.leads]


def test_what_a_colon_introduces_stays_with_it() -> None:
    assert breaks("Do this:\n\n- a\n- b\n\nEnd.\n\n- c") == [
        ("Do", PARAGRAPH),
        ("a", INTRODUCED),
        ("b", ITEM),
        ("End.", PARAGRAPH),
        ("c", PARAGRAPH),
    ]
    assert breaks("Run:\n\n```\nx\n```\n\n*See*:\n\n| a |\n|---|\n| b |") == [
        ("Run:", PARAGRAPH),
        ("x", INTRODUCED),
        ("See:", PARAGRAPH),
        ("a", INTRODUCED),
        ("b", ITEM),
    ]
    assert breaks("# One\n\n## Two\n\n- a\n\n```\n```\n\nEnd") == [
        ("One", HEADING + 5),
        ("Two", HEADING + 4),
        ("a", INTRODUCED),
        ("End", PARAGRAPH),
    ]
    for nothing in ("```\n```", "- \n"):
        assert breaks(f"*Run*:\n\n{nothing}\n\nEnd") == [("Run:", PARAGRAPH), ("End", PARAGRAPH)]


def test_lists_and_tables_have_their_leads() -> None:
    assert leads("First. Do *this*:\n\n- a:\n  - b\n- c\n\nEnd.") == [("Do this:", "a:\nb\nc"), ("a:", "b")]
    assert leads("| A | B |\n|---|---|\n| c | d |\n\nEnd.") == [("A | B", "c | d")]
    assert leads("|  |  |\n|---|---|\n| c | d |\n| e | f |") == []
    assert leads("No colon.\n\n- a\n- b") == []
    assert leads("Only:\n\n- \n\nEnd.") == []


def test_code_is_cut_before_definitions_and_at_blank_lines() -> None:
    body = "".join(f"    line_{number} = {number}\n" for number in range(9))
    text = f"```py\nimport a\n\ndef f():\n{body}\n    more = 1\n\ndef g():\n{body}\nX = 1\n\nY = 2\n```\n"
    seen = read(text)
    assert [(seen.text[block.start : block.end].split("\n")[0], block.strength) for block in seen.blocks] == [
        ("import a", PARAGRAPH),
        ("def g():", ITEM),
        ("X = 1", ITEM),
    ]


def test_a_long_paragraph_of_code_is_cut_between_lines() -> None:
    lines = [f"call_{number:03}(argument)" for number in range(60)]
    seen = read("```\n" + "\n".join(lines) + "\n\nlast()\n```")
    found = [seen.text[block.start : block.end].split("\n") for block in seen.blocks]
    assert [line for block in found for line in block if line] == [*lines, "last()"]
    assert [block.strength for block in seen.blocks] == [PARAGRAPH, JOINED, JOINED]


@given(st.lists(st.sampled_from(["x", "  y", "", "\tz", "w" * 450, "    v" * 30]), max_size=60))
def test_every_line_of_code_is_in_a_block(lines: list[str]) -> None:
    text = "# t\n\n```\n" + "\n".join(lines) + "\n```\n"
    seen = read(text)
    assert seen.text.split() == ["t", *" ".join(lines).split()]
    for block, (start, end) in zip(seen.blocks, seen.originals([block[:2] for block in seen.blocks]), strict=True):
        assert text[start:end].split() == seen.text[block.start : block.end].split()
        assert block.end - block.start <= 400 or "\n" not in seen.text[block.start : block.end]
