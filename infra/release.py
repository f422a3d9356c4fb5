"""Make the files of a release in dist/ (wheels, bill of materials, checksums): python -m infra.release VERSION

It writes the version into the files that state it, and commits them. The files of the release depend only on that
commit, the libraries that constraints.txt pins, and the Python series. The commit gets the time of its parent, so
that a second run makes the same files.
"""

from __future__ import annotations

import hashlib
import importlib
import os
import platform
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Sequence
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion, Version

from tasks.stages.sbom.sbom import SbomSettings, bill_of_materials
from tasks.stages.sbom.software import installed

ROOT = Path(__file__).resolve().parent.parent
_PROJECTS = ("pyproject.toml", "infra/wheel/pyproject.toml")
_STATED = re.compile(r'(?m)(^version = "|"indexmill(?:-pipeline|\[[\w,]+\])==)[^"]+')
"""Matches the version of a distribution, and that of the other distribution which it requires."""


def check(root: Path, text: str) -> None:
    """Raise SystemExit unless the version can be released from the checkout as it is."""
    try:
        version = Version(text)
    except InvalidVersion:
        raise SystemExit(f"{text!r} is not a version of PEP 440; expected one like 1.2.0 or 1.2.0rc1") from None
    if text != str(version):
        raise SystemExit(f"write the version {text} as {version}")
    if changes := _git(root, "status", "--porcelain"):
        raise SystemExit(f"the checkout has uncommitted changes; commit or remove them:\n{changes}")
    if f"v{text}" not in _git(root, "tag", "--points-at", "HEAD").split():  # otherwise the same release is made again
        stated = Version(tomllib.loads((root / _PROJECTS[0]).read_text("utf-8"))["project"]["version"])
        if version < stated:
            raise SystemExit(f"the version {version} is older than {stated} of {_PROJECTS[0]}")
        released = [Version(tag) for tag in _git(root, "tag", "--list", "v[0-9]*").split()]
        if released and version <= max(released):
            raise SystemExit(f"the version {version} is not newer than the release {max(released)}")
    changelog = (root / "CHANGELOG.md").read_text("utf-8")
    section = re.search(rf"(?ms)^## {re.escape(text)}(?: \(unreleased\))?\n(.*?)(?=^## |\Z)", changelog)
    if section is None or not re.search(r"(?m)^[^#\s]", section[1]):
        raise SystemExit(f"CHANGELOG.md has no section `## {text}` for users; write one and commit it")


def commit(root: Path, text: str) -> None:
    """Write the version into both distributions and the changelog, and commit the changes."""
    for name in _PROJECTS:
        project = root / name
        project.write_text(_STATED.sub(rf"\g<1>{text}", project.read_text("utf-8")), "utf-8")
    changelog = root / "CHANGELOG.md"
    changelog.write_text(changelog.read_text("utf-8").replace(f"## {text} (unreleased)\n", f"## {text}\n"), "utf-8")
    if _git(root, "status", "--porcelain"):
        time = _git(root, "log", "-1", "--format=%cI")
        dates = {"GIT_AUTHOR_DATE": time, "GIT_COMMITTER_DATE": time}
        _git(root, "commit", "--quiet", "--all", "--message", f"Release {text}", **dates)


def build(root: Path, text: str) -> list[Path]:
    """Make the release files of the checked-out commit; earlier files are removed."""
    folder = root / "dist"
    shutil.rmtree(folder, ignore_errors=True)
    environment = {**os.environ, "SOURCE_DATE_EPOCH": _git(root, "log", "-1", "--format=%ct")}
    hatchling = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)]
    for name in _PROJECTS:
        subprocess.run(hatchling, cwd=(root / name).parent, env=environment, check=True)  # noqa: S603
    wheels = [folder / f"{name}-{text}-py3-none-any.whl" for name in ("indexmill", "indexmill_pipeline")]
    bill = folder / f"indexmill-{text}.cdx.json"
    bill.write_bytes(_bill(root, wheels))
    sums = folder / "SHA256SUMS"
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in (*wheels, bill)]
    sums.write_text("".join(lines), "utf-8")
    return [*wheels, bill, sums]


def _bill(root: Path, wheels: Sequence[Path]) -> bytes:
    """Return the bill of materials of the wheels. Raises SystemExit if constraints.txt pins different libraries."""
    sys.path[:0] = map(str, wheels)  # importlib.metadata reads the metadata of wheels there
    importlib.invalidate_caches()
    software = installed("indexmill", "pipeline")
    lines = (root / "constraints.txt").read_text("utf-8").splitlines()
    pins = [Requirement(line) for line in lines if not line.startswith("#")]
    tested = {canonicalize_name(pin.name): pin.specifier for pin in pins}
    libraries = [package for package in software if not package["name"].startswith("indexmill")]
    others = [p for p in libraries if p["name"] not in tested or p["version"] not in tested[p["name"]]]
    if others:
        names = ", ".join(f"{package['name']} {package['version']}" for package in others)
        raise SystemExit(f"constraints.txt pins other libraries than are installed here: {names}; run `make install`")
    series = ".".join(platform.python_version_tuple()[:2])
    return bill_of_materials(SbomSettings(software=software, python={"name": "CPython", "version": series}))


def _git(root: Path, *words: str, **environment: str) -> str:
    variables = {**os.environ, **environment}
    return subprocess.check_output(["git", *words], cwd=root, env=variables, text=True).strip()  # noqa: S603, S607


if __name__ == "__main__":
    chosen = "".join(sys.argv[1:])
    check(ROOT, chosen)
    commit(ROOT, chosen)
    print(*build(ROOT, chosen), sep="\n")
    print(f"next: git tag -a v{chosen} -m 'Release {chosen}' && git push --follow-tags; then upload the files")
