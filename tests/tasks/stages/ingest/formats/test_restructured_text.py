from __future__ import annotations

import io
import textwrap
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.restructured_text import MAX_BYTES, MAX_LINE, extract
from tasks.text.markup import visible
from tests.deep import examples


def read(text: str | bytes, limits: ExtractionLimits | None = None) -> Extracted:
    data = textwrap.dedent(text).encode() if isinstance(text, str) else text
    return extract(io.BytesIO(data), limits or ExtractionLimits())


def markdown(text: str) -> str:
    return read(text).text


def test_sections_title_and_head() -> None:
    found = read(
        """\
        =====
        Title
        =====

        :Author: Ann
        :Version: 1.2
        :orphan:

        One
        ===

        Text.

        Deep
        ----

        Two
        ===
        """
    )
    assert found.text == "# Title\n\n## One\n\nText.\n\n### Deep\n\n## Two\n"
    assert found.title == "Title"
    assert found.metadata == {"author": "Ann", "version": "1.2"}


def test_a_long_field_of_the_head_stays_in_the_text() -> None:
    said = "word " * 200
    found = read(f"Title\n=====\n\n:Version: 1\n:Scope: {said}\n")
    assert found.text == f"# Title\n\n- **Scope**: {said.strip()}\n"
    assert found.metadata == {"version": "1"}


def test_without_a_title_the_first_heading_is_one() -> None:
    found = read("Intro.\n\nOne\n===\n\nTwo\n===\n")
    assert (found.title, found.text) == ("One", "Intro.\n\n# One\n\n# Two\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("*a* **b** ``c`` `Text <http://x.y/z>`_ http://x.y", "*a* **b** `c` [Text](http://x.y/z) http://x.y"),
        (":func:`~a.b.f` :class:`.C` :ref:`Other <x>` :issue:`12` :doc:`/a`", "`f` `C` Other issue 12 /a"),
        ("`missing`_ also_ |none| :unknown:`x y`", "missing also |none| `x y`"),
        (
            "a*b _c_ __init__ <tag> &amp; C:\\\\x `[x](y)`",
            "a\\*b \\_c\\_ \\_\\_init\\_\\_ \\<tag> \\&amp; C:\\x [x\\](y)",
        ),
        ("1\\. x", "1\\. x"),
        ("H\\ :sub:`2`\\ O :math:`x^2`", "H2O $x^2$"),
        ("See [1]_.\n\n.. [1] Note.", "See \\[1\\].\n\n\\[1\\] Note."),
        ("- a\n- b\n\n  - c\n\n1. d\n2. e", "- a\n- b\n  - c\n\n1. d\n2. e"),
        ("term : cls\n   means\n\nother\n   that", "- **term** (cls): means\n\n- **other**: that"),
        ("Text.\n\n:param x: the x\n:returns: y", "Text.\n\n- **param x**: the x\n- **returns**: y"),
        ("-f FILE, --file=FILE  the file", "- `-f FILE`, `--file=FILE`: the file"),
        ("Code::\n\n   x = 1\n\n     y\n", "Code:\n\n```\nx = 1\n\n  y\n```"),
        (".. code-block:: python\n   :linenos:\n\n   x", "```python\nx\n```"),
        (">>> 1\n1", "```python\n>>> 1\n1\n```"),
        (".. note:: Careful\n\n   Really.", "> **Note**: Careful\n>\n> Really."),
        (".. versionadded:: 1.3 Or so.\n   More.", "> **Added in version 1.3**: Or so.\n> More."),
        (".. py:function:: f(a, b=1)\n   :noindex:\n\n   Does it.", "**`f(a, b=1)`**\n\nDoes it."),
        (".. tab-set::\n\n   .. tab-item:: Linux\n\n      Do *it*.", "Linux\n\nDo *it*."),
        (".. changelog::\n   :version: 2.0\n\n   Fixed.", "version: 2.0\n\nFixed."),
        (".. toctree::\n   :maxdepth: 2\n\n   Start <intro>\n   use", "- Start\n- use"),
        (".. autoclass:: a.B\n   :members:", "`a.B`"),
        (".. image:: a.png\n   :alt: A wave", "![A wave](a.png)"),
        (".. figure:: a.png\n\n   The caption.", "The caption."),
        (".. math::\n\n   x^2", "$$\nx^2\n$$"),
        ("| one\n| two", "one\\\ntwo"),
        ("Said:\n\n   Quote.\n\n   -- Ann", "Said:\n\n> Quote.\n>\n> — Ann"),
        (".. a comment\n\nText.\n\n.. contents::\n.. _target:\n", "Text."),
        (".. |x| replace:: *said*\n\nIt is |x|.", "It is *said*."),
    ],
)
def test_what_is_seen_stays(text: str, expected: str) -> None:
    assert markdown(text) == expected + "\n"


def test_tables_are_rows_with_a_header() -> None:
    grid = """\
        +-----+-----+
        | A   | B   |
        +=====+=====+
        | a|b | two |
        |     |     |
        |     | - x |
        +-----+-----+
        | over both |
        +-----+-----+
        """
    assert markdown(grid) == "| A | B |\n| --- | --- |\n| a\\|b | two x |\n| over both |  |\n"
    simple = "== ==\nA  B\n== ==\n1  2\n== ==\n"
    assert markdown(simple) == "| A | B |\n| --- | --- |\n| 1 | 2 |\n"
    listed = ".. list-table:: Cap\n\n   * - X\n     - Y\n"
    assert markdown(listed) == "**Cap**\n\n|  |  |\n| --- | --- |\n| X | Y |\n"
    assert markdown('.. csv-table::\n   :header: a, b\n\n   1, "2|3"\n') == "| a | b |\n| --- | --- |\n| 1 | 2\\|3 |\n"


def test_no_other_file_is_read(tmp_path: Path) -> None:
    secret = tmp_path / "secret.txt"
    secret.write_text("TOPSECRET,1\n")
    for directive in (
        f".. include:: {secret}",
        f".. literalinclude:: {secret}",
        f".. raw:: html\n   :file: {secret}",
        f".. csv-table::\n   :file: {secret}",
        f".. csv-table::\n   :url: {secret.as_uri()}",
        f".. code::\n   :file: {secret}",
        f".. figure:: {secret}\n   :figwidth: image",
        f".. |x| include:: {secret}\n\n|x|",
        f".. parsed-literal::\n\n   .. include:: {secret}",
        f".. unknown::\n\n   .. include:: {secret}",
    ):
        assert "TOPSECRET" not in markdown(f"Before.\n\n{directive}\n\nAfter.\n")


def test_raw_html_and_the_day_are_left_out() -> None:
    assert markdown(".. raw:: html\n\n   <script>x</script>\n\nText.\n") == "Text.\n"
    assert markdown(".. |day| date::\n\nOn |day|.\n") == "On |day|.\n"


def test_a_document_leaves_nothing_to_the_next_one() -> None:
    text = ":strange:`x` `y`\n\n.. odd:: z\n"
    before = markdown(text)
    markdown(".. role:: strange(strong)\n.. default-role:: strange\n\n:strange:`x` `y`\n\n.. odd:: q\n")
    assert markdown(text) == before == "`x` y\n\nz\n"


def test_nothing_is_printed(capfd: pytest.CaptureFixture[str]) -> None:
    markdown("Bad\n==\n\n*open `open |open\n\n.. image::\n\n.. nosuch::\n\n+--+\n| x\n")
    assert capfd.readouterr() == ("", "")


def test_text_that_docutils_complains_of_is_kept() -> None:
    assert markdown("A long title\n-----\n\nx\n") == "# A long title\n\nx\n"
    assert "lost" in markdown("+-----+\n| lost |\n+--\n")
    assert "Never" in markdown("Deep\n----\n\nOver\n====\n\nNever\n----\n\nx\n\nOdd\n^^^^\n")


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("- " * 4_900 + "x", "hostile-file"),
        ("\n".join("  " * level + "- x" for level in range(1_000)), "hostile-file"),
        ("\n".join(f".. |{n}| replace:: {f'|{n + 1}| ' * 10}" for n in range(30)) + "\n\n|0|", "hostile-file"),
        (".. |a| replace:: " + "x" * 900 + "\n\n" + ("|a| " * 2_000 + "\n") * 2, "hostile-file"),
        ("x" * (MAX_LINE + 1), "too-large"),
        ("x\n" * MAX_BYTES, "too-large"),
        ("a\0b", "nul"),
        (b"\xe9t\xe9", "not-utf8"),
    ],
    ids=["one line", "lists", "bomb", "many", "line", "bytes", "nul", "latin-1"],
)
def test_what_docutils_would_not_come_to_an_end_with_is_refused(text: str | bytes, reason: str) -> None:
    with pytest.raises(UnreadableError) as refused:
        read(text if isinstance(text, bytes) else text.encode())
    assert refused.value.reason == reason


def test_substitutions_in_a_circle_stay_as_they_are() -> None:
    assert markdown(".. |a| replace:: |b|\n.. |b| replace:: |a|\n\n|a| x\n") == "\\|a| x\n"


@settings(max_examples=60, deadline=None)
@given(st.text(alphabet="ab.:`*_|-=+#>[]<&1\\ \n", max_size=120))
def test_any_text_is_read_or_refused(text: str) -> None:
    outcomes: list[Extracted | str] = []
    for _ in range(2):
        try:
            outcomes.append(read(text.encode()))
        except UnreadableError as refused:
            outcomes.append(refused.reason)
    assert outcomes[0] == outcomes[1]
    assert isinstance(outcomes[0], Extracted) or outcomes[0] in {"hostile-file", "unreadable-file"}


@examples(12, deep=60)
@given(st.lists(st.sampled_from(["*", "_", "`", "a", "<b>", "[x](y)", "&lt;", "#", "1.", "|", "-", "\\"]), max_size=12))
def test_what_is_said_literally_is_seen_literally(pieces: list[str]) -> None:
    """Escaped for reStructuredText, characters are seen in the Markdown as they are."""
    said = " ".join(["x", *pieces])
    found = markdown("".join(f"\\{letter}" if not letter.isalnum() and letter != " " else letter for letter in said))
    seen = visible(found, "markdown")
    assert "".join((found if seen is None else seen.text).split()) == "".join(said.split())
