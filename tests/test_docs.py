"""What the pages name exists, and the generated pages name everything."""

from __future__ import annotations

import contextlib
import importlib.util
import pkgutil
import re
import string
from collections.abc import Callable, Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import click
import pytest
import yaml
from pydantic import BaseModel, ValidationError

import indexmill
from indexmill.command import cli
from indexmill.retrieve.schemas import PACKS
from infra.site import files
from schemas.config import Configuration
from schemas.config.explained import explained_configuration
from schemas.corpus import CorpusSettings
from schemas.tables import TABLES
from storage.records import needs_search
from tests.paths import ROOT

PAGES = sorted([ROOT / "README.md", ROOT / "CHANGELOG.md", *(ROOT / "docs").rglob("*.md")])
ROOMS = "indexmill|tasks|flows|storage|schemas|benchmarks|infra|tests"
SUFFIXES = (".json", ".jsonl", ".md", ".py", ".yaml", ".service")
OTHERS = {"--build-arg", "--community-level", "--scale", "--help"}
OTHERS |= {"--lifetime-restart", "--nanny-port", "--no-dashboard", "--worker-port"}
"""Options of Docker, GraphRAG, Compose and Dask's workers, and of every command."""


def _parts(page: Path) -> tuple[str, list[str]]:
    """The prose of a page, and the texts of its code blocks, indented or fenced."""
    prose: list[str] = []
    blocks: list[list[str]] = []
    fence = inside = False
    for line in page.read_text(encoding="utf-8").splitlines():
        if line.startswith("```"):
            fence, inside = not fence, False
            if fence:
                blocks.append([])
        elif fence:
            blocks[-1].append(line)
        elif line.startswith("    ") and (inside or not prose or not prose[-1].strip()):
            if not inside:
                blocks.append([])
            inside = True
            blocks[-1].append(line.removeprefix("    "))
        else:
            inside = inside and not line.strip()
            prose.append(line)
    return "\n".join(prose), ["\n".join(block) for block in blocks]


def _spans(text: str) -> list[str]:
    return [" ".join(span.split()) for span in re.findall(r"`([^`]+)`", text)]


def _codes(page: Path) -> Iterator[str]:
    """Code spans, and the lines of code blocks without their comments."""
    prose, blocks = _parts(page)
    yield from _spans(prose)
    for block in blocks:
        yield from (line.partition(" #")[0].strip() for line in block.splitlines())


def _links(page: Path) -> list[str]:
    return [link for link in re.findall(r"\]\(([^)\s]+)\)", _parts(page)[0]) if "://" not in link]


def _anchors(page: Path) -> set[str]:
    """The anchors that GitHub gives to the headings of a page."""
    headings = re.findall(r"^#+ (.+)$", _parts(page)[0], re.MULTILINE)
    dropped = str.maketrans("", "", string.punctuation.replace("-", "").replace("_", ""))
    return {heading.lower().translate(dropped).replace(" ", "-") for heading in headings}


def _broken_links(page: Path) -> Iterator[str]:
    for link in _links(page):
        name, _, anchor = link.partition("#")
        target = (page.parent / name).resolve() if name else page
        if not target.exists() or (anchor and anchor not in _anchors(target)):
            yield link


def test_every_page_can_be_reached_from_the_index() -> None:
    seen: set[Path] = set()
    ahead = [ROOT / "docs" / "README.md"]
    while ahead:
        page = ahead.pop()
        if page not in seen and page.suffix == ".md":
            seen.add(page)
            ahead += [(page.parent / link.partition("#")[0]).resolve() for link in _links(page)]
    assert sorted(set(PAGES) - seen) == []


@cache
def _commands() -> dict[str, set[str]]:
    """The options of each command; those of its commands, where it has some, are among them."""
    context = click.Context(cli)
    found = {}
    for name in cli.list_commands(context):
        command = cli.get_command(context, name)
        assert command is not None
        below = list(command.commands.values()) if isinstance(command, click.Group) else []
        found[name] = {o for c in (command, *below) for p in c.params for o in (*p.opts, *p.secondary_opts)}
    return found


@cache
def _benchmarks() -> str:
    return "".join(path.read_text(encoding="utf-8") for path in (ROOT / "benchmarks").rglob("*.py"))


def _unknown_commands(page: Path) -> Iterator[str]:
    commands = _commands()
    every = set().union(*commands.values())
    for code in _codes(page):
        options = set(re.findall(r"(?<!\S)--[a-z][a-z-]*", code)) - OTHERS
        called = re.search(r"(?<!\S)(?<!-n )indexmill ([a-z]+)", code)  # not the namespace of kubectl
        name = called[1] if called else code.partition(" ")[0]
        if called and name not in commands:
            yield code
        elif name in commands:
            yield from [code] if options - commands[name] else []
        elif code.startswith("--") or "benchmarks." in code:
            yield from (code for option in options if option not in every and f'"{option}"' not in _benchmarks())


def _missing_files(page: Path) -> Iterator[str]:
    text = page.read_text(encoding="utf-8")
    paths = {path.rstrip(".") for path in re.findall(rf"(?<![\w/.])(?:{ROOMS})/[\w./<>*-]+", text)}
    yield from (p for p in paths if p.endswith(SUFFIXES) and "<" not in p and not (ROOT / p).exists())
    for room, name in re.findall(r"python -m (\w+)\.(\w+)", text):
        programs = (ROOT / room / f"{name}.py", ROOT / room / name / "__main__.py")
        if not any(path.exists() for path in programs):
            yield f"{room}.{name}"


def _missing_names(page: Path) -> Iterator[str]:
    """Names of the package that cannot be imported."""
    names = {found[0] for code in _spans(_parts(page)[0]) if (found := re.match(r"indexmill(\.\w+)+", code))}
    for name in names:
        if not name.endswith(SUFFIXES) and not _can_be_imported(name):
            yield name


def _can_be_imported(name: str) -> bool:
    """Whether there is a module, or something in one; a module is not loaded: that of a framework takes seconds."""
    with contextlib.suppress(ModuleNotFoundError):
        if importlib.util.find_spec(name) is not None:
            return True
    try:
        pkgutil.resolve_name(name)
    except (ImportError, AttributeError):
        return False
    return True


def _is_setting(keys: list[str]) -> bool:
    model: type[BaseModel] = Configuration
    for place, key in enumerate(keys):
        if key not in model.model_fields:
            return False
        kind: Any = CorpusSettings if keys[: place + 1] == ["corpus"] else model.model_fields[key].annotation
        if not (isinstance(kind, type) and issubclass(kind, BaseModel)):
            return key != "parameters" or all(_is_parameter(keys[place - 1], name) for name in keys[place + 1 :])
        model = kind
    return True


def _is_parameter(family: str, name: str) -> bool:
    families = {family: {"parameters": {name: "no value"}}}
    try:
        Configuration.model_validate({"store": "store", "corpus": {"paths": ["corpus"]}, "families": families})
    except ValidationError as error:
        return "there is no such setting" not in str(error)
    return True


def _keys(values: object, above: tuple[str, ...] = ()) -> Iterator[list[str]]:
    if above and above[0] == "prices":
        yield ["prices"]
    elif isinstance(values, dict):
        for key, below in values.items():
            yield from _keys(below, (*above, str(key)))
    else:
        yield list(above)


def _settings(page: Path) -> Iterator[list[str]]:
    """The keys of settings that a page names: dotted in a span, as YAML, or in the first column of a family's table."""
    prose, blocks = _parts(page)
    sections = "|".join(Configuration.model_fields)
    for span in _spans(prose):
        dotted = re.match(rf"((?:{sections})(?:\.[a-z0-9_]+)+)(?=$|[: =])", span)
        if dotted and not dotted[1].endswith(SUFFIXES):
            yield dotted[1].split(".")
    for text in [*blocks, *_spans(prose)]:
        if re.match(rf"(?:{sections}):(?: \{{|\n)", text):
            yield from _keys(yaml.safe_load(text))
    for family, rows in re.findall(r"^\|[^|\n]*`families\.(\w+)[^\n]*\n\|[ |-]+\n((?:\|.*\n?)+)", prose, re.MULTILINE):
        for row in rows.splitlines():
            first = re.match(r"\| (`[^`|]+`(?:, `[^`|]+`)*)", row)
            for name in _spans(first[1]) if first else ():
                name = name.removeprefix("parameters: ")
                yield ["families", family, *([] if _is_setting(["families", family, name]) else ["parameters"]), name]


def _unknown_settings(page: Path) -> Iterator[str]:
    yield from (".".join(keys) for keys in _settings(page) if not _is_setting(keys))


CHECKS: Mapping[str, Callable[[Path], Iterator[str]]] = {
    "links": _broken_links,
    "commands and options": _unknown_commands,
    "modules and files": _missing_files,
    "names of the package": _missing_names,
    "settings": _unknown_settings,
}


@pytest.mark.parametrize("page", PAGES, ids=[path.relative_to(ROOT).as_posix() for path in PAGES])
def test_what_a_page_names_exists(page: Path) -> None:
    assert {subject: missing for subject, check in CHECKS.items() if (missing := sorted({*check(page)}))} == {}


@pytest.fixture(scope="module")
def site() -> Mapping[str, str]:
    return files()


def _sections(text: str) -> dict[str, str]:
    """The text below each heading of a page."""
    parts = re.split(r"^#+ (.+)$", text, flags=re.MULTILINE)[1:]
    return dict(zip(parts[::2], parts[1::2], strict=True))


def test_the_reference_has_every_command_and_option(site: Mapping[str, str]) -> None:
    sections = _sections(site["docs/reference/commands.md"])
    for name, options in _commands().items():
        text = "".join(section for title, section in sections.items() if f"{title} ".startswith(f"indexmill {name} "))
        options = {option for option in options if option.startswith("-")}  # not arguments
        missing = {option for option in options if not re.search(rf"`[^`\n]*{option}\b", text + sections["Commands"])}
        assert missing == set(), name


def test_the_reference_has_every_setting(site: Mapping[str, str]) -> None:
    sections = _sections(site["docs/reference/settings.md"])
    written = yaml.safe_load(explained_configuration({"store": "store", "corpus": {"paths": ["corpus"]}}))
    keys = [*_keys(written), ["corpus", "access", "field"], ["families", "bm25", "parameters", "k1"]]
    assert [key for key in keys if f"\n| `{key[-1]}` |" not in sections[".".join(key[:-1]) or "Settings"]] == []


def test_the_reference_has_every_artifact_column_and_array(site: Mapping[str, str]) -> None:
    sections = _sections(site["docs/reference/format.md"])
    names = {name: table.schema.names for name, table in TABLES.items()}
    names |= {name: list(pack.arrays) for name, pack in PACKS.items()}
    for name, parts in names.items():
        assert f"\n| `{name}` |" in sections["Artifacts"]
        assert [part for part in parts if f"\n| `{part}` |" not in sections[f"`{name}`"]] == []


def test_the_reference_has_every_public_name(site: Mapping[str, str]) -> None:
    page = site["docs/reference/api.md"]
    assert re.findall("^::: indexmill[.](.+)$", page, re.MULTILINE) == re.findall(r"\| \[`(\w+)`\]", page)
    assert set(re.findall("^::: indexmill[.](.+)$", page, re.MULTILINE)) == set(indexmill.__all__)


def test_the_tree_of_a_store_has_every_kind_that_collection_and_forgetting_account_for() -> None:
    tree = (ROOT / "docs/format.md").read_text(encoding="utf-8").partition("<store>/\n")[2].partition("```")[0]
    folders = set(re.findall("^  ([a-z]+)/", tree, re.MULTILINE))
    assert {folder for folder in folders if needs_search(f"{folder}/00/record.json")} == {"poison", "tmp"}


def test_the_site_links_a_command_that_prints_a_page_to_the_page(site: Mapping[str, str]) -> None:
    assert "[`python -m infra.reference format`](reference/format.md)" in site["docs/format.md"]
    assert "[`python -m infra.reference settings`](reference/settings.md)" in site["docs/README.md"]


def test_llms_txt_lists_every_page_once(site: Mapping[str, str]) -> None:
    assert sorted(re.findall(r"^- \[.+\]\((.+?)\)", site["llms.txt"], re.MULTILINE)) == sorted({*site} - {"llms.txt"})
