"""Print a random sample of the product's prose for review: docstrings, error messages and paragraphs of pages.

The same seed and the same commit give the same sample.

    python -m benchmarks.wording --seed 7
"""

import argparse
import ast
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path

ROOMS = ("indexmill", "tasks", "flows", "storage", "schemas", "benchmarks")
PAGES = ("README.md", "CHANGELOG.md", "docs")


def tracked(*paths: str) -> list[Path]:
    listing = subprocess.check_output(["git", "ls-files", *paths], text=True)  # noqa: S607
    return [Path(line) for line in listing.splitlines()]


def docstrings(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the location (`path:line`) and the text of each docstring of a module."""
    for node in ast.walk(tree):
        documented = isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
        if documented and (text := ast.get_docstring(node)):
            yield f"{path}:{getattr(node, 'lineno', 1)}", text


def messages(path: Path, tree: ast.Module) -> Iterator[tuple[str, str]]:
    """Yield the location (`path:line`) and the source of each error message in a module."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Raise) and isinstance(node.exc, ast.Call) and node.exc.args:
            text = ast.unparse(node.exc.args[0])
            if " " in text and text[0] in "'\"f":
                yield f"{path}:{node.lineno}", text


def paragraphs(path: Path) -> Iterator[tuple[str, str]]:
    """Yield the location (`path:line`) and the text of each paragraph of a page, without code, tables and headings."""
    code, line = False, 1
    for block in path.read_text().split("\n\n"):
        if not code and len(block.split()) > 5 and block.lstrip("\n")[0] not in "#|<` ":
            yield f"{path}:{line}", block.strip("\n")
        code ^= block.count("```") % 2 == 1
        line += block.count("\n") + 2


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seed", type=int, required=True)
    arguments = parser.parse_args()
    modules = [(path, ast.parse(path.read_text())) for path in tracked(*ROOMS) if path.suffix == ".py"]
    pages = [path for path in tracked(*PAGES) if path.suffix == ".md"]
    kinds = {
        "docstring": (60, [text for module in modules for text in docstrings(*module)]),
        "message": (40, [text for module in modules for text in messages(*module)]),
        "paragraph": (40, [text for page in pages for text in paragraphs(page)]),
    }
    random.seed(arguments.seed)
    for kind, (size, texts) in kinds.items():
        print(f"# {size} of {len(texts)} {kind}s, seed {arguments.seed}\n")
        for number, (place, text) in enumerate(random.sample(texts, size), 1):
            print(f"{kind} {number} ({place})\n{text}\n")


if __name__ == "__main__":
    main()
