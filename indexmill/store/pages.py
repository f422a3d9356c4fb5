"""Writing HTML pages atomically, and never over a file that is not such a page."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.errors import BadInput, DiskFull
from indexmill.extras import not_installed
from indexmill.store.whole_files import write_whole

if TYPE_CHECKING:
    from jinja2 import Environment

_HEAD = 4096
"""The number of bytes at the start of a page that are searched for its generator."""


def write_page(path: Path, page: str, generator: str) -> None:
    """Write an HTML page atomically, replacing an earlier one of the same generator.

    generator: the command that writes it, as in the page's head: ``<meta name="generator" content="...">``.

    Raises BadInput if the file cannot be written or is not such a page, DiskFull if the disk is full.
    """
    try:
        if path.exists() and not _is_page(path, generator):
            raise BadInput(
                f"{path}: exists and was not written by `{generator}`, so it is left as it is: name another file"
            )
        write_whole(path, [page])
    except OSError as error:
        bad = BadInput(f"{path}: cannot write the page: {error.strerror or error}")
        raise DiskFull.of(error, path) or bad from error


def page_environment(what: str, instead: str = "", **settings: Any) -> Environment:
    """Return the environment of a page's template, which escapes all values and rejects unknown names.

    what, instead: see ``not_installed``. settings: additional settings of Jinja. Raises ModelUnavailable without Jinja.
    """
    try:
        import jinja2
    except ImportError as error:
        raise not_installed(what, "jinja2", error, instead) from error
    return jinja2.Environment(
        autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True, lstrip_blocks=True, **settings
    )


def inline_digest(text: str) -> str:
    """Return the digest of an inline script or style, as a content security policy names it."""
    return f"'sha256-{base64.b64encode(hashlib.sha256(text.encode('utf-8')).digest()).decode()}'"


def _is_page(path: Path, generator: str) -> bool:
    """Return True if a file is a page of this generator, or empty."""
    if not path.is_file():
        return False
    with path.open("rb") as file:
        head = file.read(_HEAD)
    return not head or f'<meta name="generator" content="{generator}">'.encode() in head
