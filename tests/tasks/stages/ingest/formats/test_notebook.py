from __future__ import annotations

import io
import json
from typing import Any

import pytest

from tasks.stages.ingest.documents import Location
from tasks.stages.ingest.formats.extraction import Extracted, ExtractionLimits, UnreadableError
from tasks.stages.ingest.formats.notebook import MAX_OUTPUT_LINES, extract


def markdown(source: str | list[str]) -> dict[str, Any]:
    return {"cell_type": "markdown", "source": source}


def code(source: str, *outputs: dict[str, Any]) -> dict[str, Any]:
    return {"cell_type": "code", "source": source, "outputs": list(outputs)}


def printed(text: str | list[str], name: str = "stdout") -> dict[str, Any]:
    return {"output_type": "stream", "name": name, "text": text}


def shown(**data: str) -> dict[str, Any]:
    return {"output_type": "display_data", "data": {key.replace("_", "/"): value for key, value in data.items()}}


def read(*cells: Any, limits: ExtractionLimits | None = None, **metadata: Any) -> Extracted:
    return read_bytes(json.dumps({"nbformat": 4, "cells": cells, "metadata": metadata}).encode(), limits)


def read_bytes(data: bytes, limits: ExtractionLimits | None = None) -> Extracted:
    return extract(io.BytesIO(data), limits or ExtractionLimits())


def test_text_cells_stay_and_code_is_fenced_with_what_it_printed() -> None:
    found = read(
        markdown(["# Waves\n", "\n", "A *figure*."]),
        code("%matplotlib inline\nprint(1)\n", printed("1\n")),
        code("", printed("")),
        markdown("Then."),
        kernelspec={"display_name": "Python 3", "language": "python"},
        language_info={"name": "Python"},
        authors=[{"name": "Ann"}],
    )
    assert found.text == (
        "# Waves\n\nA *figure*.\n\n```python\n%matplotlib inline\nprint(1)\n```\n\n```text\n1\n```\n\nThen.\n"
    )
    assert found.title == "Waves"
    assert found.metadata == {"programming_language": "python", "kernel": "Python 3", "author": ["Ann"]}


def test_a_small_notebook_takes_little_memory_whatever_the_limits_allow() -> None:
    found = read(markdown("Plain words"), limits=ExtractionLimits(text_bytes=1 << 50))
    assert found.text == "Plain words\n"


def test_locations_are_the_numbers_of_cells() -> None:
    found = read(markdown("One"), code(""), code("x"), markdown("Four"))
    assert found.locations == (Location(0, 1), Location(5, 3), Location(22, 4))
    assert [found.text[location.start :][:3] for location in found.locations] == ["One", "```", "Fou"]


def test_a_title_of_the_metadata_comes_first() -> None:
    assert read(markdown("# Heading"), title="Given").title == "Given"
    assert read(markdown("```\n# no\n```"), markdown("Under\n=====")).title == "Under"
    assert read(markdown("no heading")).title == ""
    assert [read(markdown(line)).title for line in ("# C#", "## Closed ##", "# ")] == ["C#", "Closed", ""]


def test_the_notebooks_of_nbformat_3_are_read() -> None:
    sheet = {
        "cells": [
            {"cell_type": "heading", "level": 2, "source": "Head"},
            {
                "cell_type": "code",
                "input": "1/0",
                "language": "python",
                "outputs": [
                    {"output_type": "pyout", "text": "1"},
                    {"output_type": "pyerr", "ename": "ZeroDivisionError", "evalue": "by zero", "traceback": ["long"]},
                ],
            },
        ]
    }
    found = read_bytes(json.dumps({"nbformat": 3, "worksheets": [sheet], "metadata": {"name": ""}}).encode())
    assert found.text == "## Head\n\n```python\n1/0\n```\n\n```text\n1\nZeroDivisionError: by zero\n```\n"
    assert found.title == "Head"


def test_pictures_and_html_are_left_out_and_alternative_texts_kept() -> None:
    found = read(
        markdown("See ![a wave](attachment:w.png) and ![b](data:image/png;base64,AAAA) ![c](c.png)."),
        code("plot()", shown(text_plain="<Figure size 10x10 with 1 Axes>", image_png="AAAA")),
        code("table()", shown(text_plain="a  b", text_html="<table><script>x</script></table>")),
        code("say()", shown(text_plain="<IPython.core.display.Markdown object>", text_markdown="**Said**")),
    )
    assert "AAAA" not in found.text
    assert "<table>" not in found.text
    assert "See a wave and b ![c](c.png)." in found.text
    assert "plot()\n```\n\n```python\ntable()\n```\n\n```text\na  b\n```" in found.text
    assert found.text.endswith("```text\n**Said**\n```\n")


def test_outputs_look_as_on_a_terminal_and_warnings_are_left_out() -> None:
    found = read(code("x", printed(["\x1b[31mred\x1b[0m\n", " 1%\r 50%\r100%\n"]), printed("careful\n", "stderr")))
    assert found.text.endswith("```text\nred\n100%\n```\n")


def test_long_outputs_are_cut() -> None:
    found = read(code("x", printed("line\n" * 1_000)), code("y", printed("z" * 1_000_000)))
    assert found.text.count("line\n") == MAX_OUTPUT_LINES
    assert found.text.count("…") == 2
    assert len(found.text) < 2_000


def test_a_fence_that_a_cell_leaves_open_ends_with_it() -> None:
    assert read(markdown("```\nopen"), markdown("text")).text == "```\nopen\n```\n\ntext\n"


def test_raw_cells_in_restructured_text_become_markdown() -> None:
    found = read({"cell_type": "raw", "source": ".. _label:\n\nAbove\n=====\n\nSee :ref:`Other <x>`."})
    assert (found.title, found.text) == ("Above", "# Above\n\nSee Other.\n")
    assert read({"cell_type": "raw", "source": "Deep :ref:`down`\n^^^^^^^^^^^^"}).text == "# Deep down\n"
    assert read({"cell_type": "raw", "source": "<b>html</b>"}, markdown("x")).text == "x\n"


def test_a_cell_of_another_language_says_so() -> None:
    assert read(code("%%bash\nls")).text.startswith("```bash\n%%bash\nls")
    assert read(code("x", printed("1")), language_info={"name": "a`\nb"}).text.startswith("```python\n")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"hello", "unreadable-file"),
        (b"[]", "unreadable-file"),
        (b"{}", "unreadable-file"),
        (b'{"nbformat": "four", "cells": []}', "unreadable-file"),
        (b'{"cells": [], "x": ' + b"9" * 5_000 + b"}", "unreadable-file"),
        (b'{"cells": ' + b"[" * 100_000, "hostile-file"),
        (b"\xff\xfe{}", "not-utf8"),
        (b'{"cells": []}', "empty-file"),
        (b'{"cells": [{"cell_type": "markdown", "source": "a\\u0000"}]}', "nul"),
        (b'{"cells": [' + b'{"cell_type": "markdown", "source": "x"},' * 60_000 + b"{}]}", "too-large"),
        (b'{"cells": [{"cell_type": "markdown", "source": "' + b"x" * 1_000_001 + b'"}]}', "too-large"),
        (b" " * 20_000_001, "too-large"),
    ],
    ids=["text", "list", "object", "format", "digits", "deep", "utf16", "empty", "nul", "cells", "long", "bytes"],
)
def test_what_is_no_notebook_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError) as refused:
        read_bytes(data, ExtractionLimits(text_bytes=1_000_000))
    assert refused.value.reason == reason


def test_values_of_other_types_are_passed_over() -> None:
    cells = '[1, null, {"cell_type": [], "source": {}}, {"cell_type": "code", "source": 5, "outputs": "x"}, '
    cells += '{"cell_type": "code", "outputs": [1, {"output_type": "stream", "text": {"a": NaN}}]}, '
    cells += '{"cell_type": "markdown", "source": ["a", 1, "b"]}]'
    found = read_bytes(f'{{"cells": {cells}, "metadata": {{"kernelspec": NaN, "authors": [NaN]}}}}'.encode())
    assert found.text == "ab\n"
    assert found.metadata == {"programming_language": "python"}


@pytest.mark.slow
def test_a_hundred_megabytes_of_output_are_not_text() -> None:
    found = read(code("x", shown(image_png="A" * 100_000_000, text_plain="<Figure size 1x1 with 0 Axes>")))
    assert found.text == "```python\nx\n```\n"
