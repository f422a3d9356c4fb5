"""The versions of tesseract and of its languages: with another one, pages that are pictures are read again."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from tasks.stages.ingest.formats.format_registry import FORMATS, format_of
from tasks.stages.ingest.formats.tesseract import tesseract_versions

PROGRAM = """#!/bin/sh
echo "$1" >> {folder}/asked
case "$1" in
  --version) printf 'tesseract {version}\\n leptonica-1.82.0\\n  libgif 5.2.1\\n Found AVX2\\n' ;;
  --list-langs) printf '{listed}\\neng\\ndeu\\n' ;;
esac
exit {code}
"""
LISTED = 'List of available languages in "{folder}/data/" (2):'

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Installs a program that says which version it is, with two languages, and lets it be found."""
    data = tmp_path / "data"
    data.mkdir()
    for language in ("eng", "deu"):
        (data / f"{language}.traineddata").write_text(f"model of {language}")
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("TESSDATA_PREFIX", raising=False)

    def written(version: str = "5.3.0", listed: str = LISTED, code: int = 0) -> None:
        fresh = tmp_path / "fresh"
        said = listed.format(folder=tmp_path)
        fresh.write_text(PROGRAM.format(folder=tmp_path, version=version, listed=said, code=code))
        fresh.chmod(0o755)
        fresh.replace(tmp_path / "tesseract")

    written()
    return written


def digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()


@pytest.mark.usefixtures("install")
def test_the_version_is_that_of_the_program_its_library_and_the_files_of_the_languages() -> None:
    assert tesseract_versions("eng+deu") == {
        "tesseract": "tesseract 5.3.0, leptonica-1.82.0",
        "deu.traineddata": digest("model of deu"),
        "eng.traineddata": digest("model of eng"),
    }
    assert tesseract_versions("deu+eng+deu") == tesseract_versions("eng+deu")


@pytest.mark.usefixtures("install")
def test_nothing_is_asked_without_a_language_and_nothing_twice(tmp_path: Path) -> None:
    assert tesseract_versions("") == {}
    assert not (tmp_path / "asked").exists()
    for _ in range(3):
        tesseract_versions("eng")
    assert (tmp_path / "asked").read_text().split() == ["--version", "--list-langs"]


def test_an_update_of_the_program_shows_while_the_process_goes_on(install: Install) -> None:
    before = tesseract_versions("eng")
    install("5.4.0")
    after = tesseract_versions("eng")
    assert after == {**before, "tesseract": "tesseract 5.4.0, leptonica-1.82.0"}


@pytest.mark.usefixtures("install")
def test_an_update_of_a_language_shows_and_one_of_another_does_not(tmp_path: Path) -> None:
    before = tesseract_versions("eng")
    (tmp_path / "data" / "deu.traineddata").write_text("another model")
    assert tesseract_versions("eng") == before
    (tmp_path / "data" / "eng.traineddata").write_text("another model")
    assert tesseract_versions("eng") == {**before, "eng.traineddata": digest("another model")}


@pytest.mark.usefixtures("install")
def test_what_is_not_installed_is_absent(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert tesseract_versions("fra")["fra.traineddata"] == "absent"
    monkeypatch.setenv("PATH", str(tmp_path / "data"))
    assert tesseract_versions("eng") == {"tesseract": "absent"}


def test_a_program_that_does_not_say_where_its_languages_are_is_believed_to_use_the_environment(
    install: Install, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    install(listed="List of available languages (2):")
    assert tesseract_versions("eng")["eng.traineddata"] == "unknown"
    monkeypatch.setenv("TESSDATA_PREFIX", str(tmp_path / "data"))
    assert tesseract_versions("eng")["eng.traineddata"] == digest("model of eng")


def test_a_program_that_fails_says_nothing(install: Install) -> None:
    install(code=1)
    assert tesseract_versions("eng") == {"tesseract": "unknown", "eng.traineddata": "unknown"}


@pytest.mark.usefixtures("install")
def test_it_is_a_version_of_formats_with_pages_that_are_pictures_alone() -> None:
    kinds = {one.kind for one in FORMATS if "tesseract" in one.versions("eng")}
    assert kinds == {"pdf"}
    pdf = format_of("pdf")
    assert pdf is not None
    assert set(pdf.versions("")) == {"pypdfium2"}
    assert set(pdf.versions("eng")) == {"pypdfium2", "tesseract", "eng.traineddata"}


@pytest.mark.skipif(shutil.which("tesseract") is None, reason="the program tesseract is not installed")
def test_the_program_of_this_machine_says_its_version() -> None:
    found = tesseract_versions("eng")
    assert found["tesseract"].startswith("tesseract ")
    assert len(found["eng.traineddata"]) == 64
