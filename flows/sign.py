"""Signatures of a version, by which recipients can verify its publisher."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from pydantic import JsonValue

from flows.operation import recorded
from indexmill.errors import ConfigurationError, CorruptBlob, SnapshotNotFound
from indexmill.store.manifest import Manifest, Ref
from indexmill.store.sbom_reader import SBOM
from indexmill.store.signatures import Statement, key_id, public_key, signed, signer
from storage import refs, runs, signature_records
from storage.clock import Clock, timestamp
from storage.protocol import Store
from storage.publish import check_whole, read_manifest


@dataclass(frozen=True, slots=True)
class Signed:
    """The result of a signature, printed by `sign --json`."""

    version: int
    manifest: str
    key: str
    """The public key."""
    keyid: str
    run: str


def read_key(path: Path) -> str:
    """Read a private key from a file; raises ConfigurationError, which never shows the key, for a file without one."""
    try:
        private = path.read_text(encoding="ascii")
        public_key(private)
    except (OSError, UnicodeDecodeError, ConfigurationError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it contains no private key"
        raise ConfigurationError(f"{path}: {reason}; `indexmill sign --new-key FILE` makes a key") from None
    return private


def sign_unsigned(store: Store, ref: Ref, manifest: Manifest, private: str, created: str) -> None:
    """Sign a version unless this key has signed it already."""
    if key_id(public_key(private)) not in map(signer, signature_records.envelopes(store, ref.version)):
        _add_signature(store, ref, manifest, private, created)


def _add_signature(store: Store, ref: Ref, manifest: Manifest, private: str, created: str) -> None:
    statement = Statement(ref.manifest, ref.version, created, _provenance(store, ref, manifest))
    signature_records.add(store, ref.version, signed(statement, private))


def sign(store: Store, version: int, private: str, *, clock: Clock = time.time) -> Signed:
    """Sign the manifest of a version with a private key. Needs no lease: a build may be at work.

    Raises ConfigurationError for an invalid key, SnapshotNotFound for a version that does not exist or was removed,
    CorruptBlob for an incomplete one.
    """
    public = public_key(private)
    with recorded(store, "sign", details={"version": version, "key": public}, clock=clock) as run:
        ref = refs.read(store, version)
        refs.check_there(store, version)
        manifest = read_manifest(store, ref.manifest)
        check_whole(store, manifest)
        _add_signature(store, ref, manifest, private, timestamp(clock()))
        run.done, run.version, run.manifest = True, version, ref.manifest
        return Signed(version, ref.manifest, public, key_id(public), run.run_id)


def _provenance(store: Store, ref: Ref, manifest: Manifest) -> Mapping[str, object]:
    """Return the inputs of the manifest, its run and code, and its parent, as far as the store has them.

    The code is that of the build that made the manifest, not of the run that copied or restored the version.
    """
    bill = manifest.artifact(SBOM)
    details = {
        "code": _code(store, ref),
        "parent_manifest": None if ref.parent is None else _manifest_of(store, ref.parent),
        "sbom": None if bill is None else bill.digest,
    }
    return {
        "corpus": manifest.corpus.model_dump(mode="json"),
        "environment": manifest.environment,
        "models": manifest.models,
        "run": ref.run_id,
        "parent": ref.parent,
        **{name: value for name, value in details.items() if value is not None},
    }


def _code(store: Store, ref: Ref) -> JsonValue:
    """Return the version and digest of the code that built a version's manifest; None if no record has them."""
    start = runs.start_of(store, ref.run_id)
    if start is not None and "code" in start.details:
        return start.details["code"]
    first = refs.first_with(store, ref.manifest)
    built = None if first is None else runs.start_of(store, refs.read(store, first).run_id)
    return None if built is None else built.details.get("code")


def _manifest_of(store: Store, version: int) -> str | None:
    try:
        return refs.read(store, version).manifest
    except (SnapshotNotFound, CorruptBlob):
        return None
