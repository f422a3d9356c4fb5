"""Real files, through the real reading process and the real commands, to the page and the heading that a hit cites."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from docx import Document
from docx.enum.text import WD_BREAK
from reportlab.lib.pagesizes import A4
from reportlab.pdfgen.canvas import Canvas

from tests.flows.children import NO_FAMILIES, build, settings
from tests.flows.commands import Run

FILLER = (
    "Esme Quill surveyed the road from Vell to Quillon, counted its milestones and wrote down the names of the farms "
    "that she passed on the way."
)
FORMATS = {".pdf": "pdf", ".docx": "docx", ".ipynb": "notebook"}
CASES = [
    # the question, the document, the heading path, the page, how a person sees it
    ("Who paid for the zanzaqua lime of the bridge?", "bridge.pdf", ["The money"], 2, "§ The money, p. 2"),
    ("Which quorrabeans does the warehouse keep?", "stores.docx", ["Stock", "Beans"], 2, "§ Stock > Beans, p. 2"),
    ("What does the vexalator print?", "machine.ipynb", ["Running it"], 3, "§ Running it, cells 3–4"),
]


def pdf() -> bytes:
    """Two pages, each with a heading in large letters."""
    made = io.BytesIO()
    page = Canvas(made, pagesize=A4, invariant=True)
    page.setTitle("The bridge of Vell")
    for heading, said in (
        ("The builders", "Ada Marl built the bridge of Vell in 1803 with forty men from Orrin Bay."),
        ("The money", "The Countess of Orrin paid for the zanzaqua lime of the bridge, and nobody else paid."),
    ):
        page.setFont("Helvetica-Bold", 22)
        page.drawString(72, 740, heading)
        page.setFont("Helvetica", 11)
        words = f"{(FILLER + ' ') * 4}{said} {FILLER}".split()
        for row in range(0, len(words), 13):
            page.drawString(72, 700 - row // 13 * 15, " ".join(words[row : row + 13]))
        page.showPage()
    page.save()
    return made.getvalue()


def docx(path: Path) -> None:
    """Headings in two levels, and an explicit page break."""
    file = Document()
    file.core_properties.title = "The stores"
    file.add_heading("Houses", 1)
    file.add_paragraph(f"There are two houses in Port Lassen. {FILLER * 3}")
    file.add_paragraph().add_run().add_break(WD_BREAK.PAGE)
    file.add_heading("Stock", 1)
    file.add_paragraph(FILLER * 2)
    file.add_heading("Beans", 2)
    file.add_paragraph(f"{(FILLER + ' ') * 3}The warehouse keeps quorrabeans, red and white, in sacks of jute.")
    file.save(str(path))


def notebook() -> str:
    """Text and code in four cells."""

    def cell(kind: str, source: str, **more: Any) -> dict[str, Any]:
        return {"cell_type": kind, "metadata": {}, "source": source, **more}

    code = {"outputs": [], "execution_count": None}
    cells = [
        cell("markdown", f"# The vexalator\n\n{FILLER * 4}"),
        cell("code", "import math", **code),
        cell("markdown", f"## Running it\n\n{(FILLER + ' ') * 3}The vexalator prints the vexation of a number."),
        cell("code", "print(math.pi)", **code),
    ]
    return json.dumps({"cells": cells, "metadata": {}, "nbformat": 4, "nbformat_minor": 5})


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("citations")
    corpus = folder / "corpus"
    corpus.mkdir()
    (corpus / "bridge.pdf").write_bytes(pdf())
    docx(corpus / "stores.docx")
    (corpus / "machine.ipynb").write_text(notebook(), encoding="utf-8")
    only_bm25 = {**NO_FAMILIES, "bm25": {"enabled": True}}
    outcome = build(settings(folder / "store", corpus, families=only_bm25, split={"tokens": 96}))
    assert (outcome.documents, outcome.quarantined) == (3, 0)
    return folder / "store"


@pytest.mark.parametrize(("question", "document", "section", "page", "seen"), CASES)
def test_a_hit_cites_the_heading_and_the_page(
    store: Path,
    capsys: pytest.CaptureFixture[str],
    question: str,
    document: str,
    section: list[str],
    page: int,
    seen: str,
) -> None:
    run = Run(capsys, "--store", store)
    asked = (question, "-m", "bm25", "-k", "1")
    for command in ("query", "answer"):
        code, shown, _ = run.printed(command, *asked)
        assert code == 0
        assert seen in shown
        code, said, _ = run.printed("--json", command, *asked)
        (hit,) = json.loads(said)["hits"]
        assert code == 0
        assert hit["document_ids"] == [document]
        assert hit["section"] == section
        assert (hit["page"], hit["metadata"]["format"]) == (page, FORMATS[Path(document).suffix])
        assert bool(hit["boxes"]) == (document == "bridge.pdf")
