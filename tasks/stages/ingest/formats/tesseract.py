"""The program tesseract, which reads pages that are pictures: its path, languages and version.

tesseract is not a Python package: it is on the PATH, and the system updates it. Its output depends on the program, the
library leptonica, which prepares the picture, and the language files, so the versions of all three are recorded.
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
"""The time limit of one call, which reads one page."""
_FOLDER = re.compile(r'"([^"\n]+)"')  # the folder of the language files; versions before 5 do not print it
_ABSENT, _UNKNOWN = "absent", "unknown"


def require_tesseract(languages: str) -> str:
    """Return the path of the program. Raises ConfigurationError if the program or a language is not installed."""
    path = shutil.which(_PROGRAM)
    if path is None:
        raise ConfigurationError(
            f"corpus.extract.ocr is {languages!r}, but the program tesseract is not installed: install it (on Debian "
            "`apt-get install tesseract-ocr`, and tesseract-ocr-LANGUAGE for each language), or leave ocr empty"
        )
    installed = frozenset(_listed(path)[1:])
    missing = [language for language in languages.split("+") if language not in installed]
    if missing:
        raise ConfigurationError(
            f"corpus.extract.ocr is {languages!r}, but tesseract has no language {', '.join(missing)}; it has "
            f"{', '.join(sorted(installed)) or 'none'}: install it (on Debian a package such as tesseract-ocr-deu)"
        )
    return path


def tesseract_versions(languages: str) -> dict[str, str]:
    """Return the program's version and the digests of its language files, which determine the text of pictures.

    languages: such as `eng+deu`; if empty, the result is empty. The value is `absent` for a program or language that is
    not installed, and `unknown` for a value that cannot be determined.
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
    """Run the program with one thread. Returns its output; None if it fails or takes too long. picture: its input."""
    inherited = ("PATH", "TESSDATA_PREFIX", "LD_LIBRARY_PATH")
    environment = {name: os.environ[name] for name in inherited if name in os.environ}
    environment |= {"OMP_THREAD_LIMIT": "1", "LC_ALL": "C.UTF-8"}
    try:
        done = subprocess.run(  # noqa: S603
            [program, *arguments],
            input=picture,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=_SECONDS,
            env=environment,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return None
    return None if done.returncode else done.stdout


def _listed(program: str) -> list[str]:
    """Return the lines that the program lists: the folder of the language files, then the languages."""
    output = run_tesseract(program, ["--list-langs"]) or b""
    return [line for line in output.decode("utf-8", "replace").split("\n") if line]


@lru_cache(maxsize=8)
def _described(program: str, identity: tuple[int, ...], prefix: str) -> tuple[str, str]:
    """Return the program's version, or `unknown`, and its language files' folder, or `prefix` if it states none."""
    lines = (run_tesseract(program, ["--version"]) or b"").decode("utf-8", "replace").split("\n")
    version = ", ".join(line.strip() for line in lines[:2]).strip(", ") or _UNKNOWN
    match = _FOLDER.search("".join(_listed(program)[:1]))
    return version, match[1] if match is not None else prefix


def _identity(path: Path) -> tuple[int, ...]:
    """Return values that change when a file is replaced."""
    status = path.stat()
    return status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns, status.st_ctime_ns


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
