"""What the package offers."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys

import pytest

import indexmill
import indexmill.errors

ERRORS = {
    name for name, value in vars(indexmill.errors).items() if isinstance(value, type) and issubclass(value, Exception)
}


def test_the_package_offers_the_reader_and_every_error() -> None:
    assert set(indexmill.__all__) == {
        "Answer",
        "Follower",
        "Hit",
        "Ref",
        "RetrievalOptions",
        "Snapshot",
        "Trust",
        "UNRESTRICTED",
        "follow",
        "newest",
        "open",
        "open_llm",
        "open_encoder",
        "open_reranker",
        "versions",
        *ERRORS,
    }
    assert set(dir(indexmill)) == set(indexmill.__all__)
    assert indexmill.Answer.__name__ == "Answer"
    assert indexmill.Hit.__name__ == "Hit"
    assert indexmill.Snapshot.__name__ == "Snapshot"
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = indexmill.nothing  # type: ignore[attr-defined]


def test_the_version_is_that_of_the_installed_package() -> None:
    assert indexmill.__version__ == importlib.metadata.version("indexmill")
    loaded = "import sys, indexmill; sys.exit('importlib.metadata' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", loaded], check=False).returncode == 0


def test_the_tree_of_errors_is_the_one_in_the_docstring() -> None:
    documented = dict(re.findall(r"([A-Z]\w+) +(\d) ", indexmill.errors.__doc__ or ""))
    documented |= dict(re.findall(r"^ +(IndexmillError) +(\d)$", indexmill.errors.__doc__ or "", re.MULTILINE))
    defined = {name: str(getattr(indexmill.errors, name).exit_code) for name in ERRORS}
    assert documented == defined
