"""Formulas of Office files on one line."""

from __future__ import annotations

import pytest

from tasks.stages.ingest.formats.office_math import formula
from tasks.stages.ingest.formats.xml import parse
from tests.tasks.stages.ingest.formats.office_files import MORE, W


def _e(text: str, tag: str = "e") -> str:
    return f"<m:{tag}><m:r><m:t>{text}</m:t></m:r></m:{tag}>"


MATRIX = f"<m:m><m:mr>{_e('12')}{_e('34')}</m:mr><m:mr>{_e('56')}{_e('78')}</m:mr></m:m>"
LINES = f"<m:eqArr>{_e('x&amp;=7')}{_e('y&amp;=9')}</m:eqArr>"


def _delimited(inner: str, start: str, end: str) -> str:
    return f'<m:d><m:dPr><m:begChr m:val="{start}"/><m:endChr m:val="{end}"/></m:dPr>{inner}</m:d>'


@pytest.mark.parametrize(
    ("inner", "shown"),
    [
        (f"<m:f>{_e('a+b', 'num')}{_e('2', 'den')}</m:f>", "(a+b)/2"),
        (
            f'<m:d><m:e><m:f><m:fPr><m:type m:val="noBar"/></m:fPr>{_e("n", "num")}{_e("k", "den")}</m:f></m:e></m:d>',
            "(n; k)",
        ),
        (f"<m:sSubSup>{_e('x')}{_e('i', 'sub')}{_e('2', 'sup')}</m:sSubSup>", "x_i^2"),
        (f"<m:sPre>{_e('6', 'sub')}{_e('14', 'sup')}{_e('C')}</m:sPre>", "_6^14C"),
        (
            f'<m:nary><m:naryPr><m:chr m:val="∑"/></m:naryPr>{_e("i=1", "sub")}{_e("n", "sup")}{_e("i")}</m:nary>',
            "∑_(i=1)^(n) i",
        ),
        (f"<m:d>{_e('a')}{_e('b')}</m:d>", "(a|b)"),
        (f'<m:d><m:dPr><m:sepChr m:val=","/></m:dPr>{_e("a")}{_e("b")}</m:d>', "(a,b)"),
        (_delimited(f"<m:e>{MATRIX}</m:e>", "[", "]"), "[12, 34; 56, 78]"),
        (_delimited(f"<m:e>{LINES}</m:e>", "{", ""), "{x=7; y=9"),
        (_delimited(_e("a-b"), "|", "|"), "|a-b|"),
        (
            f"<m:func><m:fName><m:limLow>{_e('lim')}{_e('n→∞', 'lim')}</m:limLow></m:fName>{_e('a')}</m:func>{_e('q')}",
            "lim_(n→∞) a q",
        ),
        (f"<m:func>{_e('sin', 'fName')}<m:e><m:d>{_e('x')}</m:d></m:e></m:func>{_e('=1')}", "sin(x)=1"),
        (f"<m:limUpp>{_e('A')}{_e('n', 'lim')}</m:limUpp>", "A^(n)"),
        (f"<m:acc>{_e('q')}</m:acc>", "q\u0302"),
        (f'<m:phant><m:phantPr><m:show m:val="0"/></m:phantPr>{_e("no")}</m:phant>{_e("yes")}', "yes"),
        (f"<m:r><w:rPr><w:t>no</w:t></w:rPr><m:t>a</m:t></m:r><w:del>{_e('no')}</w:del>", "a"),
    ],
)
def test_a_formula_keeps_its_cells_lines_and_delimiters_apart(inner: str, shown: str) -> None:
    assert formula(parse(f"<m:oMath {W} {MORE}>{inner}</m:oMath>".encode(), "x")) == shown


def test_the_formulas_of_a_paragraph_are_kept_apart() -> None:
    lines = "".join(f"<m:oMath><m:r><m:t>{text}</m:t></m:r></m:oMath>" for text in ("x=1", "y=2"))
    assert formula(parse(f"<x {W} {MORE}><m:oMathPara>{lines}</m:oMathPara></x>".encode(), "x")) == "x=1; y=2"
