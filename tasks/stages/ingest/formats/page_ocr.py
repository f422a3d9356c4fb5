"""Pages that are pictures, read with the program tesseract.

The program is asked for words with their places. It runs as a process of its own, with one thread, and is fed the
pixels of a page; nothing is written to disk. Its version shapes the text, as that of a library would.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Collection
from dataclasses import dataclass

from indexmill.errors import ConfigurationError
from tasks.stages.ingest.formats.page_layout import Block, joined
from tasks.stages.ingest.formats.pdf_text import Box

__all__ = ["blocks_in_picture", "require_tesseract"]

_PROGRAM = "tesseract"
_SECONDS = 180.0
"""The longest that a page may take."""
_SURE = 30.0
"""Words of which the program is less sure, of 100, are specks more often than words."""
_WORD = 5
_COLUMNS = 12


@dataclass(slots=True)
class _Word:
    text: str
    box: Box


def require_tesseract(languages: str) -> str:
    """The path of the program. Raises ConfigurationError if it, or one of the languages, is not installed."""
    path = shutil.which(_PROGRAM)
    if path is None:
        raise ConfigurationError(
            f"corpus.extract.ocr is {languages!r}, and the program tesseract is not installed: install it (on Debian "
            "`apt-get install tesseract-ocr`, and tesseract-ocr-LANGUAGE for each language), or leave ocr empty"
        )
    known = _languages(path)
    missing = [language for language in languages.split("+") if language not in known]
    if missing:
        raise ConfigurationError(
            f"corpus.extract.ocr is {languages!r}, and tesseract has no language {', '.join(missing)}; it has "
            f"{', '.join(sorted(known)) or 'none'}: install it (on Debian a package such as tesseract-ocr-deu)"
        )
    return path


def blocks_in_picture(
    program: str, languages: str, picture: tuple[int, int, bytes, float], page: int, vocabulary: Collection[str]
) -> list[Block] | None:
    """The paragraphs of a page; None if the program fails or takes too long.

    picture: width, height and rows of grey pixels, and pixels per point. Raises MemoryError if the program got none.
    """
    width, height, pixels, scale = picture
    command = [program, "stdin", "stdout", "-l", languages, "--dpi", str(max(70, round(72 * scale))), "tsv"]
    try:
        done = subprocess.run(  # noqa: S603
            command,
            input=b"P5 %d %d 255\n" % (width, height) + pixels,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    if done.returncode:
        return None
    return _paragraphs(done.stdout.decode("utf-8", "replace"), scale, page, vocabulary)


def _languages(program: str) -> frozenset[str]:
    try:
        done = subprocess.run(  # noqa: S603
            [program, "--list-langs"], capture_output=True, timeout=_SECONDS, env=_environment(), check=False
        )
    except subprocess.TimeoutExpired:
        return frozenset()
    return frozenset(done.stdout.decode("utf-8", "replace").split("\n")[1:]) - {""}


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "TESSDATA_PREFIX", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8"}


def _paragraphs(said: str, scale: float, page: int, vocabulary: Collection[str]) -> list[Block]:
    """The blocks of a table of words, which is in the order that they are read in."""
    found: dict[tuple[str, str], dict[str, list[_Word]]] = {}
    for row in said.split("\n")[1:]:
        columns = row.rstrip("\r").split("\t")
        if len(columns) != _COLUMNS or columns[0] != str(_WORD):
            continue
        try:
            left, top, width, height = (int(value) / scale for value in columns[6:10])
            sure = float(columns[10])
        except ValueError:
            continue
        text = re.sub(r"[\x00-\x1f\x7f-\x9f]", "", columns[11]).strip()
        if text and sure >= _SURE:
            word = _Word(text, (left, top, left + width, top + height))
            found.setdefault((columns[2], columns[3]), {}).setdefault(columns[4], []).append(word)
    blocks = []
    for lines in found.values():
        words = [word for line in lines.values() for word in line]
        text = joined([" ".join(word.text for word in line) for line in lines.values()], vocabulary)
        box = (
            min(word.box[0] for word in words),
            min(word.box[1] for word in words),
            max(word.box[2] for word in words),
            max(word.box[3] for word in words),
        )
        if any(letter.isalnum() for letter in text):
            blocks.append(Block("paragraph", [text], box, 0.0, page, left=box[0]))
    return blocks
