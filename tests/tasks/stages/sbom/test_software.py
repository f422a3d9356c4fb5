"""Which software a build rests on, by the metadata of distributions alone."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import ConfigurationError
from tasks.stages.sbom.software import installed, licence_of_model

Install = Callable[..., None]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Install:
    """Writes the metadata of a distribution where Python finds it."""
    monkeypatch.syspath_prepend(tmp_path)

    def written(name: str, version: str = "1.0", *lines: str, url: object = None) -> None:
        folder = tmp_path / f"{name.lower().replace('-', '_').replace('.', '_')}-{version}.dist-info"
        folder.mkdir()
        metadata = ["Metadata-Version: 2.4", f"Name: {name}", f"Version: {version}", *lines]
        (folder / "METADATA").write_text("\n".join(metadata) + "\n", encoding="utf-8")
        if url is not None:
            (folder / "direct_url.json").write_text(url if isinstance(url, str) else json.dumps(url))

    return written


def found(root: str = "zz-root", extra: str = "all") -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in installed(root, extra)}


def test_it_follows_requirements_extras_and_markers_and_leaves_out_what_is_not_installed(install: Install) -> None:
    install(
        "zz-root",
        "2.0",
        "Requires-Dist: zz_A[fast]>=1",
        'Requires-Dist: ZZ.b ; extra == "all"',
        'Requires-Dist: zz-dev ; extra == "dev"',
        "Requires-Dist: zz-absent",
        'Requires-Dist: zz-old ; python_version < "3"',
        "Requires-Dist: this is no requirement !!",
    )
    install("zz_a", "1.1", 'Requires-Dist: zz-c ; extra == "fast"', 'Requires-Dist: zz-d ; extra == "slow"')
    install("zz.b", "1.2", "Requires-Dist: zz-a", "Requires-Dist: zz-root")
    install("zz-c", "1.3", "Requires-Dist: zz-b")
    for name in ("zz-d", "zz-dev", "zz-old"):
        install(name)
    assert {name: (one["version"], one["requires"]) for name, one in found().items()} == {
        "zz-root": ("2.0", ["zz-a", "zz-b"]),
        "zz-a": ("1.1", ["zz-c"]),
        "zz-b": ("1.2", ["zz-a", "zz-root"]),
        "zz-c": ("1.3", ["zz-b"]),
    }
    assert list(found()) == sorted(found())


@pytest.mark.parametrize(
    ("lines", "licences"),
    [
        (["License-Expression: MIT OR Apache-2.0", "License: BSD"], ["MIT OR Apache-2.0"]),
        (["License: BSD-3-Clause", "Classifier: License :: OSI Approved :: MIT License"], ["BSD-3-Clause"]),
        (
            ["License: The text\n        of a licence", "Classifier: License :: OSI Approved :: MIT License"],
            ["MIT License"],
        ),
        ([f"License: {'long ' * 40}", "Classifier: License :: Public Domain"], ["Public Domain"]),
        (
            [
                "License: UNKNOWN",
                "Classifier: License :: OSI Approved",
                "Classifier: License :: OSI Approved :: B",
                "Classifier: License :: OSI Approved :: A",
                "Classifier: Topic :: License",
            ],
            ["A", "B"],
        ),
        ([], []),
    ],
)
def test_licences_are_what_the_metadata_states(install: Install, lines: list[str], licences: list[str]) -> None:
    install("zz-root", "1.0", *lines)
    assert found()["zz-root"]["licences"] == licences


@pytest.mark.parametrize(
    ("url", "origin"),
    [
        (None, {}),
        ({"url": "file:///home/ada/secret/place", "dir_info": {"editable": True}}, {"local": ""}),
        ({"url": "file:///home/ada/a.whl", "archive_info": {}}, {"local": ""}),
        ({"url": "C:\\\\ada\\\\a.whl", "archive_info": {}}, {"local": ""}),
        (
            {"url": "https://ada:key@example.org/r.git?x=1#f", "vcs_info": {"vcs": "git", "commit_id": "ab12"}},
            {"vcs_url": "git+https://example.org/r.git@ab12"},
        ),
        (
            {"url": "https://token@example.org:8443/a.whl?sig=key", "archive_info": {}},
            {"download_url": "https://example.org:8443/a.whl"},
        ),
        ({"url": "https://[bad", "archive_info": {}}, {"local": ""}),
        ("{", {"local": ""}),
        ("[]", {"local": ""}),
    ],
)
def test_an_origin_names_no_path_of_the_machine_and_no_secret(install: Install, url: object, origin: object) -> None:
    install("zz-root", "1.0", url=url)
    assert found()["zz-root"]["origin"] == origin


def test_what_is_not_installed_cannot_be_listed() -> None:
    advice = r"zz-missing is imported without being installed.*pip install 'zz-missing\[all\]'"
    with pytest.raises(ConfigurationError, match=advice):
        installed("zz-missing", "all")


@pytest.mark.slow
def test_this_program_is_listed_with_what_a_build_needs() -> None:
    known = found("indexmill", "pipeline")
    assert {"numpy", "pyarrow", "prefect", "distributed", "openvino"} <= known.keys()
    assert known["indexmill"]["origin"] == {"local": ""}  # editable
    assert str(sys.prefix) not in json.dumps(known)
    assert all(one["version"] for one in known.values())


@pytest.mark.parametrize(
    ("card", "licences"),
    [
        ("---\nlanguage: en\nlicense: apache-2.0\n---\n# Model\n", ["apache-2.0"]),
        ("---\nlicense: [mit, other]\n---\n", ["mit", "other"]),
        ("---\nlicense: {a: b}\n---\n", []),
        ("---\nlicense: [1, mit, 'two\n\n  lines']\n---\n", ["mit"]),
        (f"---\nlicense: {'x' * 500}\n---\n", []),
        ("---\n- license\n---\n", []),
        ("---\nlicense: [\n---\n", []),
        ("text\n---\nlicense: mit\n---\n", []),
        ("---\nlicense: mit\n", []),
        ("license: mit", []),
        ("", []),
        (b"\xff\xfe---\nlicense: mit\n---\n", []),
    ],
)
def test_the_licence_of_a_model_is_what_its_card_states(card: str | bytes, licences: list[str], tmp_path: Path) -> None:
    (tmp_path / "README.md").write_bytes(card if isinstance(card, bytes) else card.encode())
    assert licence_of_model(tmp_path) == licences
    assert licence_of_model(tmp_path / "nowhere") == []
