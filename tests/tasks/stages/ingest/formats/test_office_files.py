"""Files of Office programs and books in a corpus become documents, or are refused with a reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from schemas.corpus import CorpusSettings
from tasks.stages.ingest.documents import FILE_FIELDS, Document, RejectedRow, SourceRow, document_of
from tasks.stages.ingest.readers import read
from tasks.stages.ingest.source_files import find
from tests.tasks.stages.ingest.formats.office_files import docx, epub, paragraph, pptx, shape, xlsx

FILES = {
    "a.docx": ("docx", docx(paragraph("words", "Title"))),
    "b.DOCM": ("docx", docx(paragraph("words"))),
    "c.pptx": ("pptx", pptx([shape("words")])),
    "d.pptm": ("pptx", pptx([shape("words")])),
    "e.xlsx": ("xlsx", xlsx({"words": '<row r="1"><c r="A1"><v>1</v></c></row>'})),
    "f.xlsm": ("xlsx", xlsx({"words": '<row r="1"><c r="A1"><v>1</v></c></row>'})),
    "sub/g.epub": ("epub", epub({"a.xhtml": "<p>words</p>"})),
}


def _read(folder: Path) -> list[Document | RejectedRow]:
    settings = CorpusSettings(paths=(str(folder),))
    rows = [row for file in find(settings).files for row in read(file, settings)]
    return [document_of(row, FILE_FIELDS, 10_000_000) if isinstance(row, SourceRow) else row for row in rows]


def test_each_file_is_a_document_named_by_its_path_with_its_format(tmp_path: Path) -> None:
    for name, (_, data) in FILES.items():
        path = tmp_path / name
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(data)
    documents = {one.document_id: one for one in _read(tmp_path) if isinstance(one, Document)}
    assert sorted(documents) == sorted(FILES)
    for name, (kind, _) in FILES.items():
        assert "words" in documents[name].text
        assert f'"format":"{kind}"' in documents[name].metadata
    assert documents["a.docx"].title == "words"
    assert [one.page for one in documents["sub/g.epub"].locations] == [1]


@pytest.mark.parametrize("name", ["a.docx", "a.pptx", "a.xlsx", "a.epub"])
def test_a_file_that_is_something_else_is_refused_with_a_reason(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"\xd0\xcf\x11\xe0\xa1\xb1\x1a\xe1" + "EncryptedPackage".encode("utf-16-le"))
    (refusal,) = _read(tmp_path)
    assert isinstance(refusal, RejectedRow)
    assert (refusal.reason, refusal.line) == ("encrypted", None)
