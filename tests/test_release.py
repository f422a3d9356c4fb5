"""`make release`: what it refuses, and the files that it makes."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from infra.release import check, commit
from tests.paths import ROOT

CHANGELOG = (
    "# Changelog\n\n## 1.3.0 (unreleased)\n\n**Build**\n\n- Faster.\n\n## 1.2.1\n\n### Fixes\n\n## 1.2.0\n\nFirst.\n"
)
CHECKOUT = ("flows", "indexmill", "indexmill_pipeline", "infra", "sample", "schemas", "storage", "tasks")


def git(root: Path, *words: str) -> str:
    variables = {**os.environ, "GIT_COMMITTER_DATE": "2026-01-31T02:00:00Z"}
    return subprocess.check_output(["git", *words], cwd=root, env=variables, text=True)  # noqa: S607


def committed(root: Path, *tags: str) -> Path:
    """The root, as a repository with one commit of all files."""
    git(root, "init", "--quiet")
    for name, value in (("user.name", "ada"), ("user.email", "ada@example.org")):
        git(root, "config", name, value)
    git(root, "add", "--all")
    git(root, "commit", "--quiet", "--message", "all")
    for tag in tags:
        git(root, "tag", tag)
    return root


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    """A checkout whose last release is 1.2.0."""
    (tmp_path / "infra" / "wheel").mkdir(parents=True)
    reader = '[project]\nversion = "1.2.0"\ndependencies = ["click>=8"]\npipeline = ["indexmill-pipeline==1.2.0"]\n'
    (tmp_path / "pyproject.toml").write_text(reader)
    pipeline = '[project]\nversion = "1.2.0"\ndependencies = [\n    "indexmill[a,b]==1.2.0",\n    "x==1.2.0",\n]\n'
    (tmp_path / "infra" / "wheel" / "pyproject.toml").write_text(pipeline)
    (tmp_path / "CHANGELOG.md").write_text(CHANGELOG)
    committed(tmp_path, "v1.2.0")
    git(tmp_path, "commit", "--quiet", "--allow-empty", "--message", "more")
    return tmp_path


@pytest.mark.parametrize(
    ("version", "message"),
    [
        ("", "not a version of PEP 440"),
        ("1.3-next", "not a version of PEP 440"),
        ("v1.3.0", "write the version v1.3.0 as 1.3.0"),
        ("1.1.9", "older than 1.2.0"),
        ("1.2.0", "not newer than the release 1.2.0"),
        ("1.2.1", "no section `## 1.2.1`"),
        ("1.4.0", "no section `## 1.4.0`"),
    ],
)
def test_a_version_that_is_none_or_not_newer_or_not_described_is_refused(
    version: str, message: str, checkout: Path
) -> None:
    with pytest.raises(SystemExit, match=message):
        check(checkout, version)


def test_uncommitted_changes_are_refused(checkout: Path) -> None:
    (checkout / "new.py").write_text("")
    with pytest.raises(SystemExit, match=r"uncommitted changes; commit or remove them:\n\?\? new\.py"):
        check(checkout, "1.3.0")


def test_the_version_is_committed_where_it_stands_and_nothing_is_tagged(checkout: Path) -> None:
    before = git(checkout, "log", "-1", "--format=%cI")
    check(checkout, "1.3.0")
    commit(checkout, "1.3.0")
    assert git(checkout, "status", "--porcelain") == ""
    assert git(checkout, "log", "-1", "--format=%s%n%cI") == f"Release 1.3.0\n{before}"
    assert git(checkout, "tag").split() == ["v1.2.0"]
    for name in ("pyproject.toml", "infra/wheel/pyproject.toml"):
        assert (checkout / name).read_text().count("1.3.0") == 2
    assert '"x==1.2.0"' in (checkout / "infra/wheel/pyproject.toml").read_text()
    assert (checkout / "CHANGELOG.md").read_text() == CHANGELOG.replace(" (unreleased)", "")


def test_a_release_is_made_again_from_its_commit(checkout: Path) -> None:
    commit(checkout, "1.3.0")
    git(checkout, "tag", "v1.3.0")
    head = git(checkout, "rev-parse", "HEAD")
    check(checkout, "1.3.0")
    commit(checkout, "1.3.0")
    assert git(checkout, "rev-parse", "HEAD") == head


@pytest.mark.slow
def test_one_commit_gives_the_same_files(tmp_path: Path) -> None:
    releases = []
    for name in ("first", "second"):
        root = tmp_path / name
        for folder in CHECKOUT:
            shutil.copytree(ROOT / folder, root / folder, ignore=shutil.ignore_patterns("__pycache__"))
        for file in (".gitignore", "CHANGELOG.md", "LICENSE", "README.md", "constraints.txt", "pyproject.toml"):
            shutil.copy(ROOT / file, root / file)
        changelog = root / "CHANGELOG.md"
        changelog.write_text(f"# Changelog\n\n## 99.1\n\n- More.\n\n{changelog.read_text()}")
        committed(root)
        done = subprocess.run(
            [sys.executable, "-m", "infra.release", "99.1"], cwd=root, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, done.stderr
        assert "git tag -a v99.1" in done.stdout
        releases.append({path.name: path.read_bytes() for path in (root / "dist").iterdir()})
    files = releases[0]
    bill = "indexmill-99.1.cdx.json"
    wheels = {f"{name}-99.1-py3-none-any.whl" for name in ("indexmill", "indexmill_pipeline")}
    assert files.keys() == {*wheels, bill, "SHA256SUMS"}
    assert files == releases[1]
    sums = dict(reversed(line.split("  ")) for line in files.pop("SHA256SUMS").decode().splitlines())
    assert sums == {name: hashlib.sha256(data).hexdigest() for name, data in files.items()}
    assert JsonStrictValidator(SchemaVersion.V1_6).validate_str(files[bill].decode()) is None
    listed = {component["name"]: component for component in json.loads(files[bill])["components"]}
    assert json.loads(files[bill])["metadata"]["component"]["purl"] == "pkg:pypi/indexmill@99.1"
    assert listed["indexmill-pipeline"]["version"] == "99.1"
    assert {"torch", "prefect", "pyarrow"} <= listed.keys()
    assert not {"pytest", "ruff", "indexmill"} & listed.keys()
