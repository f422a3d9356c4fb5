"""The software bill of materials: valid CycloneDX, the same bytes for the same environment."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import replace
from importlib.util import find_spec
from typing import Any
from unittest.mock import patch

import pytest
from cyclonedx.schema import SchemaVersion
from cyclonedx.validation.json import JsonStrictValidator

from indexmill.errors import ModelUnavailable
from indexmill.store.canonical import canonical_json
from tasks.core.stage import WHOLE, part_key
from tasks.stages.sbom import sbom
from tasks.stages.sbom.sbom import STAGE, SbomSettings, bill_of_materials
from tests.paths import ROOT


def distribution(name: str, version: str = "1.0", *requires: str, **fields: Any) -> dict[str, Any]:
    return {"name": name, "version": version, "licences": [], "origin": {}, "requires": list(requires)} | fields


SETTINGS = SbomSettings(
    software=[
        distribution("alpha", "1.0", "beta", licences=["MIT"]),
        distribution("beta", "2.0+cpu", "alpha", licences=["Apache-2.0 OR MIT"]),
        distribution(
            "gamma", "3.0", licences=["A licence of ours"], origin={"vcs_url": "git+https://a.example/r@ab12"}
        ),
        distribution("indexmill", "0.1.0", "alpha", "gamma", licences=["apache 2"], origin={"local": ""}),
        distribution("local", "1", licences=["MIT OR X", "GPL-3.0-only"], origin={"local": ""}),
    ],
    python={"name": "CPython", "version": "3.11.7"},
    model={"name": "all-MiniLM-L6-v2", "weights": "5" * 64, "licences": ["apache-2.0"]},
)


def components(bill: bytes) -> dict[str, dict[str, Any]]:
    return {one["name"]: one for one in json.loads(bill)["components"]}


def problem(bill: bytes) -> object:
    return JsonStrictValidator(SchemaVersion.V1_6).validate_str(bill.decode())


def test_it_lists_software_with_version_licence_and_package_url() -> None:
    bill = bill_of_materials(SETTINGS)
    assert problem(bill) is None
    told, found = json.loads(bill), components(bill)
    assert (told["bomFormat"], told["specVersion"]) == ("CycloneDX", "1.6")
    assert told["metadata"] == {
        "component": {
            "bom-ref": "indexmill@0.1.0",
            "licenses": [{"license": {"name": "apache 2"}}],
            "name": "indexmill",
            "type": "application",
            "version": "0.1.0",
        },
        "lifecycles": [{"phase": "build"}],
    }
    assert found["alpha"]["purl"] == "pkg:pypi/alpha@1.0"
    assert found["alpha"]["licenses"] == [{"license": {"id": "MIT"}}]
    assert found["beta"]["purl"] == "pkg:pypi/beta@2.0%2Bcpu"
    assert found["beta"]["licenses"] == [{"expression": "Apache-2.0 OR MIT"}]
    assert found["gamma"]["purl"].startswith("pkg:pypi/gamma@3.0?vcs_url=git%2Bhttps:")
    assert found["gamma"]["licenses"] == [{"license": {"name": "A licence of ours"}}]
    assert "purl" not in found["local"]
    assert found["local"]["licenses"] == [{"license": {"id": "GPL-3.0-only"}}, {"license": {"name": "MIT OR X"}}]
    assert (found["CPython"]["type"], found["CPython"]["version"]) == ("platform", "3.11.7")
    model = found["all-MiniLM-L6-v2"]
    assert (model["type"], model["hashes"]) == ("machine-learning-model", [{"alg": "SHA-256", "content": "5" * 64}])
    assert model["licenses"] == [{"license": {"id": "Apache-2.0"}}]
    requires = {one["ref"]: one.get("dependsOn", []) for one in told["dependencies"]}
    assert requires["indexmill@0.1.0"] == ["CPython@3.11.7", "alpha@1.0", "gamma@3.0", "model:all-MiniLM-L6-v2"]
    assert (requires["alpha@1.0"], requires["beta@2.0+cpu"]) == (["beta@2.0+cpu"], ["alpha@1.0"])


def test_it_has_neither_time_nor_number_and_the_same_bytes_in_any_order() -> None:
    bill = bill_of_materials(SETTINGS)
    told = json.loads(bill)
    assert "serialNumber" not in told
    assert "timestamp" not in told["metadata"]
    assert canonical_json(told) == bill
    assert bill_of_materials(replace(SETTINGS, software=list(reversed(SETTINGS.software)))) == bill


@pytest.mark.slow
def test_another_process_elsewhere_makes_the_same_bytes() -> None:
    program = (
        "import sys; from tests.tasks.stages.sbom.test_sbom import SETTINGS, bill_of_materials; "
        "sys.stdout.buffer.write(bill_of_materials(SETTINGS))"
    )
    environment = {**os.environ, "PYTHONHASHSEED": "7", "TZ": "Asia/Tokyo", "HOSTNAME": "elsewhere"}
    done = subprocess.run([sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True, check=True)
    assert done.stdout == bill_of_materials(SETTINGS)


def test_the_key_of_the_part_has_every_version_and_the_model() -> None:
    key = part_key(STAGE, WHOLE, SETTINGS, {})
    others = [
        replace(SETTINGS, software=[distribution("indexmill", "0.1.1"), *SETTINGS.software[:3]]),
        replace(SETTINGS, python={"name": "CPython", "version": "3.11.8"}),
        replace(SETTINGS, model={**SETTINGS.model, "weights": "6" * 64}),
    ]
    assert len({key, *(part_key(STAGE, WHOLE, one, {}) for one in others)}) == 4


def test_hostile_metadata_and_an_encoder_without_weights_make_a_valid_bill() -> None:
    odd = distribution("odd", "1\n`|\x1b[31m", licences=["((", "\u202eX", "NONE"], origin={"download_url": "a/ b"})
    for model in ({}, {"name": "hash", "weights": "", "licences": []}):
        bill = bill_of_materials(replace(SETTINGS, software=[*SETTINGS.software, odd], model=model))
        assert problem(bill) is None
        assert components(bill)["odd"]["version"] == "1\n`|\x1b[31m"
        assert ("hash" in components(bill)) == bool(model)


def test_a_missing_library_is_named_with_what_to_do() -> None:
    def absent(name: str) -> object:
        return None if name == "cyclonedx" else find_spec(name)

    with (
        patch.object(sbom, "find_spec", absent),
        pytest.raises(ModelUnavailable, match=r"run.sbom needs the package cyclonedx.*indexmill\[pipeline\].*leave"),
    ):
        sbom.drive(None)  # type: ignore[arg-type]
