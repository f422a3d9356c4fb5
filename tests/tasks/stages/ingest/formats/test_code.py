from __future__ import annotations

import io
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from tasks.stages.ingest.formats.code import LANGUAGES, MAX_LINE, extract, fenced
from tasks.stages.ingest.formats.extraction import ExtractionLimits, UnreadableError

PYTHON = '''\
"""A module."""
import os

LIMIT = 3


# Opens it.
@cached
def open_it(path):
    # not a # heading
    return os.open(path)


class Store:
    """Keeps blobs."""

    size: int = 3

    def __init__(self):
        self.a = 1

    async def read(self):
        x = """
## no heading
"""


if __name__ == "__main__":
    open_it("x")
'''

SMALL = {
    "c": (
        "typedef struct {\n int a;\n} pair_t;\n#ifdef X\nstatic int f(void)\n{\n}\n#endif\n",
        ["typedef struct pair_t", "static int f"],
    ),
    "c-header": ("#ifndef H\n#define H\nclass A {\n int f() {\n }\n};\n#endif\n", ["class A", " int f"]),
    "cpp": (
        "namespace a {\ntemplate <class T>\nclass B {\n int f() {\n }\n};\n}\nint a::B::g(int x) {\n}\n",
        ["namespace a", " class B", "  int f", "int a::B::g"],
    ),
    "csharp": (
        "namespace A {\n [X]\n public class B {\n  public int C() {\n  }\n }\n}\n",
        ["namespace A", " class B", "  int C"],
    ),
    "go": (
        "// doc\nfunc (s *Server) Start(x int) error {\n}\ntype A struct {\n x int\n}\n",
        ["func (s *Server) Start", "type A"],
    ),
    "java": ("@X\npublic class A {\n @Override\n public void b(int c) {\n }\n}\n", ["class A", " void b"]),
    "javascript": (
        "export const f = async (x) => {\n};\nexports.g = function () {\n}\ndescribe('a', () => {\n});\n",
        ["const f", "exports.g", "describe('a')"],
    ),
    "julia": ("module A\nfunction f(x)\n 1\nend\nend\n", ["module A", " function f"]),
    "kotlin": ("class A(val x: Int) {\n fun b(): Int {\n  return 1\n }\n}\n", ["class A", " fun b"]),
    "lua": ("local function f(x)\n return x\nend\nM.x = function(a)\nend\n", ["local function f", "M.x"]),
    "perl": ("package A;\nuse strict;\nsub b {\n my $x;\n}\n1;\n", ["sub b"]),
    "php": ("<?php\nabstract class A {\n  public function b($x) {\n }\n}\n", ["class A", " function b"]),
    "r": ("# Adds.\nadd <- function(x) {\n  x\n}\nanswer = 1\n", ["add", "answer = 1"]),
    "ruby": (
        "module A\n  class B < C\n    def self.x(a)\n    end\n  end\nend\n",
        ["module A", " class B", "  def self.x"],
    ),
    "rust": (
        "/// Doc.\n#[derive(X)]\npub struct A {\n x: u8\n}\nimpl<T> D for A {\n fn f() {\n }\n}\n",
        ["struct A", "impl<T> D for A", " fn f"],
    ),
    "scala": ("object A {\n def b(x: Int): Int = {\n x }\n}\n", ["object A", " def b"]),
    "shell": ("f() {\n echo\n}\nfunction g {\n echo\n}\n", ["f", "function g"]),
    "sql": ("CREATE TABLE a (\n b int\n);\n", ["CREATE TABLE a"]),
    "swift": ("extension A: B {\n func c() -> Int {\n return 1 }\n}\n", ["extension A", " func c"]),
    "tsx": ("export function A() {\n return <p>x</p>;\n}\n", ["function A"]),
    "typescript": ("export default class A<T> {\n @dec()\n async b(x: number) {\n }\n}\n", ["class A", " async b"]),
}


def read(text: str | bytes, language: str = "python", limits: ExtractionLimits | None = None) -> str:
    data = text.encode() if isinstance(text, str) else text
    return extract(io.BytesIO(data), limits or ExtractionLimits(), language).text


def headings(markdown: str) -> list[str]:
    """The headings outside fences, indented by their level."""
    found, fence = [], ""
    for line in markdown.split("\n"):
        mark = re.match(r"`{3,}", line)
        if mark:
            fence = "" if line == fence else fence or mark[0]
        elif not fence and line.startswith("#"):
            hashes, _, name = line.partition(" ")
            found.append(" " * (len(hashes) - 2) + name.strip("`").strip())
    return found


def code(markdown: str) -> list[str]:
    """The lines inside fences that are not blank."""
    found, fence = [], ""
    for line in markdown.split("\n"):
        mark = re.match(r"`{3,}", line)
        if fence and line == fence:
            fence = ""
        elif fence:
            found.append(line)
        elif mark:
            fence = mark[0]
    return [line for line in found if line.strip()]


def test_functions_classes_and_methods_are_sections() -> None:
    found = read(PYTHON)
    assert headings(found) == [
        "def open_it",
        "class Store",
        " def __init__",
        " async def read",
        'if __name__ == "__main__":',
    ]
    assert found.startswith('```python\n"""A module."""\nimport os\n\nLIMIT = 3\n```\n\n## `def open_it`')


def test_a_comment_and_a_decorator_stand_with_their_definition() -> None:
    assert "## `def open_it`\n\n```python\n# Opens it.\n@cached\ndef open_it(path):" in read(PYTHON)


def test_a_comment_by_itself_belongs_to_what_comes_after_it() -> None:
    text = "def f():\n    pass\n\n\n# Group\n\n\ndef g():\n    pass\n\n# end\n"
    assert headings(read(text)) == ["def f", "def g"]
    assert "## `def g`\n\n```python\n# Group\n" in read(text)


def test_the_code_stays_as_it_is() -> None:
    assert code(read(PYTHON)) == [line for line in PYTHON.split("\n") if line.strip()]


@pytest.mark.parametrize("language", SMALL)
def test_every_language_has_its_definitions(language: str) -> None:
    text, expected = SMALL[language]
    found = read(text, language)
    assert [name for name in headings(found) if name in expected] == expected
    assert code(found) == [line for line in text.split("\n") if line.strip()]


def test_the_examples_name_every_language() -> None:
    assert {*SMALL, "python"} == set(LANGUAGES)


@pytest.mark.parametrize("language", sorted(LANGUAGES))
@settings(max_examples=15, deadline=None)
@given(data=st.data())
def test_no_line_is_lost_or_doubled(language: str, data: st.DataObject) -> None:
    sample = SMALL.get(language, (PYTHON, []))[0].split("\n")
    odd = st.sampled_from(["```", "}", "{", "# x", "end", '"""', "\t x", "é = `a`", "#if A", "#endif", ")", "\\", ""])
    lines = data.draw(st.lists(st.one_of(st.sampled_from(sample), odd), max_size=40))
    assert code(read("\n".join(lines), language)) == [line for line in lines if line.strip()]


def test_code_with_fences_stands_in_a_longer_fence() -> None:
    assert fenced("a\n````\nb", "md") == "`````md\na\n````\nb\n`````"
    assert read('x = """\n```\n"""\n') == '````python\nx = """\n```\n"""\n````\n'


def test_a_byte_order_mark_and_carriage_returns_are_dropped() -> None:
    assert read(b"\xef\xbb\xbfx = 1\r\ny = 2\r\n") == "```python\nx = 1\ny = 2\n```\n"


def test_a_blank_file_has_no_text() -> None:
    assert read(" \n\n") == ""


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"x = '\xe9'", "not-utf8"),
        (b"x = '\0'", "nul"),
        (b"x = " + b"1" * 5_000_000, "too-large"),
        (b"x = " + b"1" * MAX_LINE, "too-large"),
        ((b"a" * 700 + b"\n") * 100, "too-large"),
        (b"x\n" * 600_000, "too-large"),
    ],
    ids=["latin-1", "nul", "one line", "a long line", "dense lines", "too many bytes"],
)
def test_what_is_no_readable_code_is_refused(data: bytes, reason: str) -> None:
    with pytest.raises(UnreadableError) as refused:
        read(data, limits=ExtractionLimits(text_bytes=1_000_000 if reason == "too-large" else 10_000_000))
    assert refused.value.reason == reason


@pytest.mark.parametrize(
    ("language", "text"),
    [
        ("python", ("(" * 400 + "\n") * 400),
        ("python", "\n".join(" " * level + f"class C{level}:" for level in range(800))),
        ("javascript", ("{" * 400 + "\n") * 400),
        ("c", "#ifdef A\n" * 20_000),
        ("r", "f <- function(x) {\n" * 20_000),
    ],
    ids=["brackets", "classes", "braces", "conditions", "functions"],
)
def test_pathological_nesting_is_read(language: str, text: str) -> None:
    assert code(read(text, language)) == [line for line in text.split("\n") if line.strip()]
