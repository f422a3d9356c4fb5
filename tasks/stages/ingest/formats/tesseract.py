"""The program tesseract, which reads pages that are pictures: where it is, what it knows, and which version it is.

It is no package of Python: it is found on the path, and updated by the system. What it reads depends on the program,
on the library leptonica, which prepares the picture, and on the files of its languages, so all three count as versions.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
from collections.abc import Sequence
from functools import lru_cache
from pathlib import Path

from indexmill.errors import ConfigurationError

_PROGRAM = "tesseract"
_SECONDS = 180.0
"""The longest that it may take for anything, such as a page."""
_FOLDER = re.compile(r'"([^"\n]+)"')  # of its languages: versions before 5 do not say it
_ABSENT, _UNKNOWN = "absent", "unknown"


def require_tesseract(languages: str) -> str:
    """The path of the program. Raises ConfigurationError if it, or one of the languages, is not installed."""
    path = shutil.which(_PROGRAM)
    if path is None:
        raise ConfigurationError(
            f"corpus.extract.ocr is {languages!r}, and the program tesseract is not installed: install it (on Debian "
            "`apt-get install tesseract-ocr`, and tesseract-ocr-LANGUAGE for each language), or leave ocr empty"
        )
    known = frozenset(_listed(path)[1:])
    missing = [language for language in languages.split("+") if language not in known]
    if missing:
        raise ConfigurationError(
            f"corpus.extract.ocr is {languages!r}, and tesseract has no language {', '.join(missing)}; it has "
            f"{', '.join(sorted(known)) or 'none'}: install it (on Debian a package such as tesseract-ocr-deu)"
        )
    return path


def tesseract_versions(languages: str) -> dict[str, str]:
    """What shapes the text of pages that are pictures: the program's version, and the digests of its languages' files.

    languages: as `eng+deu`; empty for none, and then nothing is looked for. What is not installed is `absent`; what the
    program does not say is `unknown`.
    """
    if not languages:
        return {}
    path = shutil.which(_PROGRAM)
    if path is None:
        return {_PROGRAM: _ABSENT}
    version, folder = _described(path, _identity(Path(path)), os.environ.get("TESSDATA_PREFIX", ""))
    files = sorted({f"{language}.traineddata" for language in languages.split("+")})
    return {_PROGRAM: version, **{name: _file_digest(folder, name) for name in files}}


def run_tesseract(program: str, arguments: Sequence[str], picture: bytes = b"") -> bytes | None:
    """What the program writes, with one thread; None if it fails or takes too long. picture: its standard input."""
    try:
        done = subprocess.run(  # noqa: S603
            [program, *arguments],
            input=picture,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=_environment(),
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode else done.stdout


def _environment() -> dict[str, str]:
    kept = {name: os.environ[name] for name in ("PATH", "TESSDATA_PREFIX", "LD_LIBRARY_PATH") if name in os.environ}
    return {**kept, "OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8"}


def _listed(program: str) -> list[str]:
    """A line about the folder of languages, and the languages."""
    said = run_tesseract(program, ["--list-langs"]) or b""
    return [line for line in said.decode("utf-8", "replace").split("\n") if line]


@lru_cache(maxsize=8)
def _described(program: str, identity: tuple[int, ...], prefix: str) -> tuple[str, str]:
    """The version of the program, and the folder of its languages; either empty where it does not say."""
    said = (run_tesseract(program, ["--version"]) or b"").decode("utf-8", "replace").split("\n")
    version = ", ".join(line.strip() for line in said[:2]).strip(", ") or _UNKNOWN
    found = _FOLDER.search("".join(_listed(program)[:1]))
    return version, found[1] if found is not None else prefix


def _identity(path: Path) -> tuple[int, ...]:
    """What changes when a file is replaced."""
    known = path.stat()
    return known.st_dev, known.st_ino, known.st_size, known.st_mtime_ns, known.st_ctime_ns


def _file_digest(folder: str, name: str) -> str:
    if not folder:
        return _UNKNOWN
    path = Path(folder, name)
    try:
        return _content_digest(path, _identity(path))
    except FileNotFoundError:
        return _ABSENT
    except OSError:
        return _UNKNOWN


@lru_cache(maxsize=32)
def _content_digest(path: Path, identity: tuple[int, ...]) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
