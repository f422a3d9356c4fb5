"""Pages that are pictures are read again once tesseract is another, as a build of an empty store reads them."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tasks.stages.ingest import scan_process, source_files
from tests.flows.children import NO_FAMILIES, build, settings
from tests.tasks.stages.ingest.formats.pdf_files import one_page, stream

PROGRAM = """#!{python}
import os, sys
if sys.argv[1] == "--version":
    print("tesseract {version}\\n leptonica-1.82.0")
elif sys.argv[1] == "--list-langs":
    print("List of available languages in \\"{folder}/\\" (1):\\neng")
else:
    sys.stdin.buffer.read()
    words = "The scan was read by version {version}".split()
    for number, word in enumerate(words, 1):
        print(5, 1, 1, 1, 1, number, 100 * number, 100, 90, 20, 95, word, sep="\\t")
"""


@pytest.fixture
def install(quick: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Installs a program that reads its version in every picture."""
    programs = quick / "programs"
    programs.mkdir()
    (programs / "eng.traineddata").write_text("model")
    monkeypatch.setenv("PATH", str(programs))
    monkeypatch.setattr(source_files, "_SETTLED", -1e6)

    def written(version: str) -> None:
        fresh = programs / "fresh"
        fresh.write_text(PROGRAM.format(python=sys.executable, version=version, folder=programs))
        fresh.chmod(0o755)
        fresh.replace(programs / "tesseract")

    scan_process.close()  # a process that waits for a scan has the environment of an earlier test
    yield written
    scan_process.close()


@pytest.mark.slow
def test_an_update_of_tesseract_gives_what_a_build_of_an_empty_store_gives(
    quick: Path, install: Callable[[str], None]
) -> None:
    corpus = quick / "corpus"
    corpus.mkdir()
    (corpus / "scan.pdf").write_bytes(one_page(stream(b"72 72 300 300 re f")))
    (corpus / "page.md").write_text("# Vell\n\nFenna Rook came to Vell.\n", encoding="utf-8")
    chosen = settings(quick / "store", corpus, corpus={"extract": {"ocr": "eng"}}, families=NO_FAMILIES)
    install("5.3.0")
    first = build(chosen)
    assert first.files_read == 2
    assert build(chosen).files_read == 0
    install("5.4.0")
    second = build(chosen)
    assert (second.files_read, second.files_unchanged) == (1, 1)
    assert second.manifest != first.manifest
    assert second.manifest == build({**chosen, "store": str(quick / "fresh")}).manifest
