"""The software bill of materials of a snapshot: which software its build environment had, in CycloneDX's JSON."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from indexmill.errors import CorruptBlob
from indexmill.store.regular_files import MANIFEST_BYTES, open_regular

SBOM = "sbom.cdx.json"
"""The artifact, which a snapshot has where `run.sbom` is set."""


def read_sbom(path: Path) -> dict[str, Any]:
    """The bill of materials in the verified file of the artifact. Raises CorruptBlob if it is no CycloneDX document."""
    try:
        with open_regular(path, MANIFEST_BYTES) as file:
            found = json.loads(file.read(MANIFEST_BYTES))
    except (OSError, ValueError, RecursionError) as error:
        raise CorruptBlob(f"{path}: {SBOM!r} cannot be read: {error}; check it with `indexmill verify`") from error
    if not isinstance(found, dict) or found.get("bomFormat") != "CycloneDX":
        raise CorruptBlob(f"{path}: {SBOM!r} is no CycloneDX document; check it with `indexmill verify`")
    return found
