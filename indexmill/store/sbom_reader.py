"""The software bill of materials of a snapshot: the software of its build environment, in CycloneDX JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from indexmill.errors import CorruptBlob
from indexmill.store.regular_files import MANIFEST_BYTES, open_regular

SBOM = "sbom.cdx.json"
"""The artifact's name; a snapshot has it if `run.sbom` is set."""


def read_sbom(path: Path) -> dict[str, Any]:
    """Read the bill of materials from the verified file of its artifact; raises CorruptBlob unless it is CycloneDX."""
    try:
        with open_regular(path, MANIFEST_BYTES) as file:
            document = json.loads(file.read(MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptBlob(f"{path}: {SBOM!r} cannot be read: {error}; check it with `indexmill verify`") from error
    if not isinstance(document, dict) or document.get("bomFormat") != "CycloneDX":
        raise CorruptBlob(f"{path}: {SBOM!r} is not a CycloneDX document; check it with `indexmill verify`")
    return document
