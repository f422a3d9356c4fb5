"""Write the pages of the documentation site into build/docs, from which `make docs` builds it: python -m infra.site.

These are the pages of the checkout, the reference pages, and llms.txt. A command that prints a reference page becomes a
link to that page.
"""

from __future__ import annotations

import os
import re
import shutil
import tomllib
from collections.abc import Iterator, Mapping
from fnmatch import fnmatch
from pathlib import Path

from infra.reference import PAGES

ROOT = Path(__file__).resolve().parent.parent


def files() -> dict[str, str]:
    """Return the files of the site by path."""
    committed = ("README.md", "CHANGELOG.md", "docs/**/*.md")
    paths = sorted(path for pattern in committed for path in ROOT.glob(pattern))
    pages = {(page := path.relative_to(ROOT).as_posix()): _linked(page, path.read_text("utf-8")) for path in paths}
    pages |= {f"docs/reference/{name}.md": "\n".join(lines()) + "\n" for name, lines in PAGES.items()}
    return pages | {"llms.txt": "\n".join(_llms(pages)) + "\n"}


def _linked(page: str, text: str) -> str:
    folder = os.path.relpath("docs/reference", os.path.dirname(page))  # noqa: PTH120 - a path of the site
    return re.sub(r"`python -m infra\.reference (\w+)`", rf"[\g<0>]({folder}/\1.md)", text)


def _llms(pages: Mapping[str, str]) -> Iterator[str]:
    """Yield the lines of llms.txt (https://llmstxt.org): pages in the navigation's order, each with its headings."""
    project = tomllib.loads((ROOT / "zensical.toml").read_text("utf-8"))["project"]
    yield from (f"# {project['site_name']}", "", f"> {project['site_description']}")
    remaining = list(pages)
    for section, patterns in (item for entry in project["nav"] for item in entry.items()):
        yield from ("", f"## {section}", "")
        for page in [page for pattern in patterns for page in remaining if fnmatch(page, pattern)]:
            if page in remaining:
                remaining.remove(page)
                text = re.sub("^```.*?^```", "", pages[page], flags=re.MULTILINE | re.DOTALL)
                title, *headings = re.findall("^##? (.+)$", text, re.MULTILINE)
                yield f"- [{title}]({page}): {', '.join(headings)}".removesuffix(": ")


def main() -> None:
    """Write the files; earlier files are removed."""
    folder = ROOT / "build" / "docs"
    shutil.rmtree(folder, ignore_errors=True)
    for name, text in files().items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
