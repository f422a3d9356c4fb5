"""A sixth family for the tests alone: passages by their first words, their incipits.

`install` adds it to a copy of the packages as `docs/contributing.md` describes: a folder in each of two packages, a
class of settings and its field, and a line in each of two registries. Nothing else of the copy changes.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from tests.paths import ROOT, SAMPLE

NAME = "incipits"

_HERE = Path(__file__).parent

_SETTINGS = '''class IncipitSettings(FamilySection):
    """Settings of the incipits family that shape its artifacts."""

    words: int = Field(8, ge=1, le=64, description="words that a passage is found by, from its beginning")
    parameters: Annotated[_Values, _validated_by(IncipitParameters)] = _parameters()


'''

_LINES = {
    "tasks/registry.py": (
        ("from tasks.families.lsh_tree.family", "from tasks.families.incipits.family import FAMILY as INCIPITS\n"),
        ("    LSH_TREE,\n", "    INCIPITS,\n"),
    ),
    "indexmill/retrieve/method_registry.py": (
        ('        _declared("lsh_tree"),\n', '        _declared("incipits"),\n'),
    ),
    "schemas/config/families.py": (
        (
            "from indexmill.families.lsh_tree.parameters",
            "from indexmill.families.incipits.parameters import IncipitParameters\n",
        ),
        ("class FamilySettings(", _SETTINGS),
        ("    lsh_tree: LshTreeSettings", "    incipits: IncipitSettings = IncipitSettings()\n"),
    ),
}
"""By file: pairs of an anchor and the text inserted before it."""


def install(folder: Path) -> None:
    """Copy the packages, the tests and the sample corpus into a folder, and add the family to the copy."""
    no_bytecode = shutil.ignore_patterns("__pycache__")
    for name in ("indexmill", "indexmill_pipeline", "tasks", "flows", "storage", "schemas", "tests", "infra/wheel"):
        shutil.copytree(ROOT / name, folder / name, ignore=no_bytecode)
    shutil.copytree(SAMPLE, folder / SAMPLE.name)
    shutil.copy(ROOT / "pyproject.toml", folder)
    for room, ours in (("tasks", "builder"), ("indexmill", "reader")):
        shutil.copytree(_HERE / ours, folder / room / "families" / NAME, ignore=no_bytecode)
    for name, lines in _LINES.items():
        text = (folder / name).read_text(encoding="utf-8")
        for before, added in lines:
            assert text.count(before) == 1, f"{name}: {before!r} stands there {text.count(before)} times"
            text = text.replace(before, added + before)
        (folder / name).write_text(text, encoding="utf-8")
