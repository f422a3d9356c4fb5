"""MDX: the content and titles of components, without their tags, imports and comments."""

from __future__ import annotations

import time

import pytest

from tasks.stages.ingest.formats.mdx import without_components


def test_components_leave_their_titles_and_their_content() -> None:
    text = (
        'import { Tabs } from "@x";\nexport const y = {\n  a: 1,\n};\n\n# Start\n\n<Steps>\n  <Step title="Install">\n'
        "    Run:\n\n    ```bash\n    if <Tab>\n      {/* kept */}\n    ```\n\n    - a\n      - b\n  </Step>\n"
        '  <Card\n    title="Next"\n    icon={<Icon a=">" />}\n  />\n</Steps>\n\n{/* left\nout */}Use `<Tab>`'
        " <Badge>new</Badge> and <>x</>.\n\n- an item\n\n      of two paragraphs\n"
    )
    assert " ".join(without_components(text).split()) == (
        "# Start **Install** Run: ```bash if <Tab> {/* kept */} ``` - a - b **Next** Use `<Tab>` new and x. "
        "- an item of two paragraphs"
    )
    lines = without_components(text).split("\n")
    assert [line for line in lines if line.startswith(" ")] == ["  {/* kept */}", "  - b", "      of two paragraphs"]


def test_the_names_of_documented_fields_are_read() -> None:
    text = '<ResponseField name="version" type="string">\n  Its version.\n</ResponseField>\n<ParamField path="id" />\n'
    assert " ".join(without_components(text).split()) == "**version** Its version. **id**"


def test_titles_may_be_expressions_and_exports_have_blank_lines() -> None:
    export = "export const meta = {\n  a: 1,\n\n  b: 2,\n};\n\n"
    text = "<Card title={`Hello`}>\nA card.\n</Card>\n<Tab label={'Two'} />\n"
    assert " ".join(without_components(export + text).split()) == "**Hello** A card. **Two**"


def test_markdown_without_components_is_unchanged() -> None:
    text = "# A\n\nimporting x < 3 <https://a.b> <b>c</b>\n\n~~~\n<Tab>\n"
    assert without_components(text) == text


@pytest.mark.parametrize(
    "piece", ["<A {", '<A "', "```\n", "{/*", "`", "import x\n", "<A a={{", "</A", "<A>", "</A>\n"]
)
def test_unclosed_markup_takes_linear_time(piece: str) -> None:
    started = time.process_time()
    without_components(piece * 10_000)
    assert time.process_time() - started < 2
