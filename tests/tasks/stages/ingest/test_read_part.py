"""Parts that read files whose reading takes long, and what becomes of these in the spill folder."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from schemas.corpus import CorpusSettings
from storage.folder import init_folder
from storage.table_blobs import read_table
from tasks.stages.ingest import read_part, source_files, spill, supervisor
from tasks.stages.ingest.source_files import SourceFile, find
from tests.tasks.making import Parts


def write_notebook(path: Path, text: str) -> None:
    cell = {"cell_type": "markdown", "metadata": {}, "source": text}
    notebook = {"nbformat": 4, "nbformat_minor": 5, "metadata": {}, "cells": [cell]}
    path.write_text(json.dumps(notebook), encoding="utf-8")


def test_what_a_file_holds_while_it_changes_is_in_no_part_and_left_to_be_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(source_files, "_SETTLED", -1e6)
    corpus, spilled = tmp_path / "corpus", tmp_path / "spilled"
    for folder in (corpus, spilled):
        folder.mkdir()
    for name in ("a", "b"):
        write_notebook(corpus / f"{name}.ipynb", "Fenna Rook left Vell.")
    read = spill.read

    def changing(file: SourceFile, *arguments: Any) -> Iterator[Any]:
        for row in read(file, *arguments):
            if file.name == "b.ipynb":
                write_notebook(corpus / "b.ipynb", "Fenna Rook came back to Vell.")
            yield row

    monkeypatch.setattr(spill, "read", changing)
    monkeypatch.setattr(supervisor, "scan", spill.scan)
    settings = CorpusSettings(paths=(str(corpus),))
    store = init_folder(tmp_path / "store")
    (spec,) = read_part.specs(find(settings).files, settings)
    outputs = Parts(store).make(read_part.STAGE, spec).receipt.outputs
    assert read_table(store, outputs["read"]).column("file").to_pylist() == ["a.ipynb"]
    (refused,) = read_table(store, outputs["refused"]).to_pylist()
    assert (refused["file"], refused["document_id"], refused["reason"]) == ("b.ipynb", "b.ipynb", "unreadable-file")
    result = read_part.unpack(store.url, outputs, read_part.files_of(spec), spilled, fresh=True)
    assert (result.files, result.documents, result.refused) == (("a.ipynb",), 1, {})
