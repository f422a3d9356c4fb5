"""An exported snapshot: a plain folder that any tool can read.

    manifest.json
    signatures.json                signatures of the manifest, if it has any
    README.md                      the data card, for users: readers ignore it
    tables/<artifact>.parquet      tables
    families/<artifact>            arrays and files of the index families
    <artifact>                     other arrays and files, under their own names

The names come from the manifest's artifacts, which are plain relative paths, and the bytes are those of the blobs. A
link in the folder may point within it, not out of it. This is checked when a file is first used. Later uses reopen the
file by its path, so nothing here protects against concurrent changes to the folder.
"""

from __future__ import annotations

import hashlib
import json
import os
from io import BufferedReader
from pathlib import Path

from indexmill.errors import CorruptBlob, SnapshotNotFound
from indexmill.forks import Lock
from indexmill.store.artifact_listing import Artifact
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.manifest import Manifest
from indexmill.store.regular_files import MANIFEST_BYTES, open_regular
from indexmill.store.signatures import SIGNATURES_FILE, Statement, Trust
from indexmill.text.counted import byte_size

CARD_FILE = "README.md"
"""The data card of an export of any form; no digest covers it."""
MANIFEST_FILE = "manifest.json"


def exported_name(artifact: Artifact, manifest: Manifest) -> str:
    """Return the path of a manifest's artifact, relative to the exported folder."""
    if artifact.kind == "table":
        return f"tables/{artifact.name}.parquet"
    family = artifact.name.partition("/")[0] in manifest.families
    return f"families/{artifact.name}" if family else artifact.name


def is_exported(path: Path) -> bool:
    """Return True if a folder is an exported snapshot rather than a store."""
    return (path / MANIFEST_FILE).exists()


class ExportedFolder:
    """A reader of an exported folder; it never writes."""

    def __init__(self, path: Path, digest: str | None = None, trust: Trust | None = None) -> None:
        """Read the manifest.

        digest: the expected SHA-256; None accepts any. trust: the policy for its signatures. Raises SnapshotNotFound if
        the SHA-256 differs, CorruptBlob if it cannot be read, NotTrusted if too few trusted keys signed it.
        """
        self._path = path
        where = path / MANIFEST_FILE
        try:
            with self._open(where, MANIFEST_BYTES) as file:
                data = file.read(MANIFEST_BYTES)
        except OSError as error:
            raise CorruptBlob(f"{where}: cannot be read: {error.strerror or error}") from error
        actual = digest_of(data)
        if digest not in (None, actual):
            raise SnapshotNotFound(f"{where}: has the SHA-256 {actual}; expected {digest}")
        self.statements: list[tuple[Statement, list[str]]] = []
        """The signers' statements, each with the signers' names; empty without a trust policy."""
        if trust is not None:
            envelopes = self._signatures()
            trust.check(actual, envelopes, path)
            self.statements = trust.statements(actual, envelopes)
        self.digest = actual
        """The SHA-256 of the manifest."""
        self.manifest = Manifest.from_bytes(data, str(where))
        self._checked: set[str] = set()
        self._lock = Lock()

    def _signatures(self) -> list[bytes]:
        """Read the folder's signature envelopes without checking them."""
        try:
            with self._open(self._path / SIGNATURES_FILE, MANIFEST_BYTES) as file:
                listed = json.loads(file.read(MANIFEST_BYTES))
        except (OSError, ValueError, RecursionError):
            return []
        return [canonical_json(envelope) for envelope in listed] if isinstance(listed, list) else []

    def path_of(self, artifact: Artifact) -> Path:
        """Return the expected path of the artifact's file, unchecked."""
        return self._path / exported_name(artifact, self.manifest)

    def open_local(self, artifact: Artifact) -> Path:
        """Return the path of the artifact's file; the first call checks size and digest. Raises CorruptBlob."""
        path = self.path_of(artifact)
        with self._lock:
            if artifact.name not in self._checked:
                self._check(path, artifact)
                self._checked.add(artifact.name)
        return path

    def _check(self, path: Path, artifact: Artifact) -> None:
        try:
            with self._open(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != artifact.bytes:
                    raise CorruptBlob(
                        f"{path}: has {byte_size(size)} ({size} bytes); the manifest says {artifact.bytes}: "
                        "export the snapshot again"
                    )
                digest = hashlib.file_digest(file, "sha256").hexdigest()
        except OSError as error:
            raise CorruptBlob(
                f"{path}: cannot be read: {error.strerror or error}; export the snapshot again"
            ) from error
        if digest != artifact.digest:
            raise CorruptBlob(
                f"{path}: has the SHA-256 {digest}; the manifest says {artifact.digest}: export the snapshot again"
            )

    def _open(self, path: Path, most: int | None = None) -> BufferedReader:
        """Open a regular file of the folder; raises CorruptBlob for any other kind and for a link out of the folder."""
        if not path.resolve().is_relative_to(self._path.resolve()):
            raise CorruptBlob(f"{path}: is a link that points outside the folder: export the snapshot again")
        return open_regular(path, most)
