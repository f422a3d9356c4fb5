"""What the modules of the reader offer."""

from __future__ import annotations

import importlib.metadata
import inspect
import pkgutil
import re
import subprocess
import sys
import types

import pytest

import indexmill
import indexmill.errors

MODULES = sorted(
    info.name for info in pkgutil.walk_packages(indexmill.__path__, "indexmill.") if info.name != "indexmill.__main__"
)


def public_names(module: types.ModuleType) -> set[str]:
    """The functions and classes that a module defines under a public name; a constant may stay out of ``__all__``."""
    names = set()
    for name, value in vars(module).items():
        if name.startswith("_") or inspect.ismodule(value):
            continue
        if (inspect.isclass(value) or inspect.isroutine(value)) and value.__module__ == module.__name__:
            names.add(name)
    return names


def order(name: str) -> tuple[int, str]:
    """Constants, then classes, then functions: the order that ruff keeps."""
    return (0 if name.isupper() else 1 if name[0].isupper() else 2), name


@pytest.mark.parametrize("name", ["indexmill", *MODULES])
def test_all_is_sorted_and_names_what_is_public(name: str) -> None:
    module = importlib.import_module(name)
    if not hasattr(module, "__all__"):
        assert public_names(module) == set()
        return
    assert list(module.__all__) == sorted(set(module.__all__), key=order)
    assert [one for one in module.__all__ if not hasattr(module, one)] == []
    assert public_names(module) <= set(module.__all__)


def test_the_package_offers_the_reader_and_every_error() -> None:
    assert set(indexmill.__all__) == {
        "Answer",
        "Follower",
        "Hit",
        "Ref",
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
        *indexmill.errors.__all__,
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
    defined = {name: str(getattr(indexmill.errors, name).exit_code) for name in indexmill.errors.__all__}
    assert documented == defined
