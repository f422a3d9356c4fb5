"""The JavaScript of others is, byte for byte, what is pinned."""

from __future__ import annotations

import hashlib
import json
from importlib.resources import files
from pathlib import Path
from typing import Any

import pytest

from indexmill import ConfigurationError
from indexmill.explore import vendor_files
from tests.paths import ROOT

FOLDER = ROOT / "indexmill" / "explore" / "vendor"


def pins() -> Any:
    return json.loads((FOLDER / "vendor.json").read_text(encoding="utf-8"))


def test_every_shipped_file_is_pinned_and_has_its_digest() -> None:
    pinned = {one["name"]: one["sha256"] for package in pins()["packages"] for one in package["files"]}
    shipped = {path.name: path for path in FOLDER.iterdir() if path.name != "vendor.json"}
    assert shipped.keys() == pinned.keys()
    for name, path in shipped.items():
        assert hashlib.sha256(path.read_bytes()).hexdigest() == pinned[name], name
    for package in pins()["packages"]:
        assert package["integrity"].startswith("sha512-")
        assert package["license"] == "MIT"
        assert sorted(one["script"] for one in package["files"]) == [False, True]


def test_a_changed_file_is_never_inlined(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(vendor_files, "files", lambda _: tmp_path)
    folder = tmp_path / "vendor"
    folder.mkdir()
    for path in FOLDER.iterdir():
        (folder / path.name).write_bytes(path.read_bytes())
    vendor_files.libraries.cache_clear()
    assert [one.name for one in vendor_files.libraries()] == ["graphology", "sigma"]
    (folder / "sigma.min.js").write_bytes((folder / "sigma.min.js").read_bytes() + b";fetch('https://example.org')")
    vendor_files.libraries.cache_clear()
    with pytest.raises(ConfigurationError, match=r"sigma\.min\.js has the SHA-256"):
        vendor_files.libraries()
    (folder / "sigma.min.js").unlink()
    with pytest.raises(ConfigurationError, match=r"sigma\.min\.js cannot be read: .*reinstall indexmill"):
        vendor_files.libraries()
    vendor_files.libraries.cache_clear()


def test_the_wheel_has_the_files() -> None:
    assert (files("indexmill.explore") / "assets" / "page.html.jinja").is_file()
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").split()
    assert not {"vendor", "*.js"} & set(ignored)  # hatch leaves out what git ignores
