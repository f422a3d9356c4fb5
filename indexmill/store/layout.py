"""The names of files in a store: this module formats and parses every path below a store's root.

A name is a relative path of plain components, the same in a folder and in an object store. Numbers are written with
twenty digits, so that names sort in the order of numbers. A function `..._name` returns the name of one record. A
function `..._prefix` returns the prefix of all records of a kind, or of the records that belong to its argument. A
constant is the prefix of the records that it names.
"""

from __future__ import annotations

import re

FORMAT_VERSION = 2
"""The format version that this indexmill writes and reads."""

READER_VERSION = 5
"""The ``minimum_reader_version`` of the manifests that this indexmill writes and reads."""

TOO_OLD = "was written before the first release of indexmill: build a new store in an empty folder"
"""The end of the error message for a store or manifest of an earlier version."""

BRANCH = "main"
"""The name of the sequence of versions that a build extends and a reader opens."""

STORE_FILE = "store.json"
"""The file with the store's format version; a folder without it is not a store."""

TEMPORARY = "tmp"
"""The folder for unfinished files and the scratch folders of runs; never read."""

REFS = "refs/"
REMOVALS = "refs/removed/"
ASIDE = "aside/"  # lists of removal candidates of a later collection
REMOVING = "removing/"  # lists of files in removal
TOMBSTONES = "tombstones/"
LEASES = "leases/"  # with their renewals and releases
HOLDS = "holds/"
EXPORTS = "exports/"
REFUSALS = "refusals/"  # records of unanswerable prompts

_DIGEST = re.compile(r"[0-9a-f]{64}")
_COMPONENT = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,199}")
_NUMBERED = re.compile(r"([0-9]{20})\.json")


def is_digest(text: str) -> bool:
    """Return True if a string is a SHA-256 in 64 lower-case hex digits."""
    return _DIGEST.fullmatch(text) is not None


def blob_path(digest: str) -> str:
    """Return the path of a blob, `blobs/sha256/ab/ab12...`, derived from the digest alone.

    Raises ValueError for anything that is not a digest, so that no record can point outside the blobs.
    """
    return f"blobs/sha256/{_digest(digest)[:2]}/{digest}"


def check_name(name: str) -> str:
    """Return the name if each of its components is plain: letters, digits, `_`, `-` and inner dots.

    Raises ValueError otherwise (empty, absolute, `..`, hidden, a component over 200 characters).
    """
    if not all(_COMPONENT.fullmatch(component) for component in name.split("/")):
        raise ValueError(f"{name!r} is not a valid name in a store: use letters, digits, '_', '-', '.' and '/'")
    return name


def number_of(name: str) -> int | None:
    """Return the number in the last component of `.../00000000000000000007.json`; None for any other name."""
    matched = _NUMBERED.fullmatch(name.rpartition("/")[2])
    return int(matched[1]) if matched else None


def ref_prefix(branch: str) -> str:
    if branch in ("aliases", "removed", "signatures"):
        raise ValueError(f"a branch cannot be named {branch!r}: that folder contains other records")
    return check_name(f"refs/{branch}") + "/"


def ref_name(branch: str, version: int) -> str:
    """Return the name of a ref, whose creation is the only commit point of a store."""
    return f"{ref_prefix(branch)}{version:020d}.json"


def alias_prefix(alias: str = "") -> str:
    return check_name(f"refs/aliases/{alias}") + "/" if alias else "refs/aliases/"


def alias_name(alias: str, number: int) -> str:
    """Return the name of an alias's record, given the record's number; the newest record says where it points."""
    return f"{alias_prefix(alias)}{number:020d}.json"


def removal_name(version: int) -> str:
    """Return the name of the record of a version's removal; the version's ref is kept, its blobs are not."""
    return f"{REMOVALS}{version:020d}.json"


def signature_prefix(version: int) -> str:
    return f"refs/signatures/{version:020d}/"


def signature_name(version: int, number: int) -> str:
    return f"{signature_prefix(version)}{number:020d}.json"


def aside_name(epoch: int, number: int) -> str:
    """Return the name of a record of removal candidates, given a lease's epoch and a number; the last one applies."""
    return f"{ASIDE}{epoch:020d}.{number:020d}.json"


def removing_name(epoch: int, number: int) -> str:
    return f"{REMOVING}{epoch:020d}.{number:020d}.json"


def tombstone_name(document: str) -> str:
    """Return the name of a document's tombstone, given the SHA-256 of the document's id."""
    return f"{TOMBSTONES}{_digest(document)}.json"


def forgotten_name(run_id: str) -> str:
    """Return the name of the list of files that a run removed to forget documents."""
    return check_name(f"forgotten/{run_id}.json")


def batch_prefix(batch: str = "") -> str:
    """Return the prefix of the records of a batch of questions, or of all batches."""
    return check_name(f"batches/{batch}") + "/" if batch else "batches/"


def batch_name(batch: str, step: str) -> str:
    """Return the name of the record of one step of a batch; see `storage.batches`."""
    return check_name(f"{batch_prefix(batch)}{step}.json")


def lease_name(epoch: int) -> str:
    """Return the name of an epoch's lease; creating it takes the lease."""
    return f"{LEASES}{epoch:020d}.json"


def renewal_name(epoch: int, number: int) -> str:
    return f"{LEASES}{epoch:020d}.{number:020d}.json"


def release_name(epoch: int) -> str:
    return f"{LEASES}{epoch:020d}.released.json"


def hold_name(number: int) -> str:
    """Return the name of a record of the hold; the record with the highest number says whether the hold is on."""
    return f"{HOLDS}{number:020d}.json"


def export_name(number: int) -> str:
    return f"{EXPORTS}{number:020d}.json"


def receipt_prefix(stage: str) -> str:
    return check_name(f"work/{stage}") + "/"


def receipt_name(stage: str, key: str) -> str:
    """Return the name of the receipt of a complete part."""
    return check_name(f"{receipt_prefix(stage)}{key}.json")


def attempt_name(stage: str, key: str, attempt: str) -> str:
    """Return the name of the receipt of a part with failed rows, from one attempt (a run)."""
    return check_name(f"{receipt_prefix(stage)}{key}.{attempt}.json")


def poison_prefix(maker: str = "") -> str:
    """Return the prefix of records of documents that a stage cannot process. maker: its hash; empty for all stages."""
    return check_name(f"poison/{maker}") + "/" if maker else "poison/"


def poison_name(maker: str, content_hash: str) -> str:
    return check_name(f"{poison_prefix(maker)}{content_hash}.json")


def ledger_prefixes() -> tuple[str, ...]:
    """Return the prefixes of language models' answers, in the order of keys; each covers 1/256 of all keys."""
    return tuple(f"ledger/{byte:02x}/" for byte in range(256))


def ledger_name(key: str) -> str:
    """Return the name of the answer to a prompt, given the SHA-256 of all its inputs."""
    return f"ledger/{_digest(key)[:2]}/{key}"


def refusal_name(key: str) -> str:
    return f"{REFUSALS}{_digest(key)}"


def run_prefix(run_id: str = "") -> str:
    return check_name(f"runs/{run_id}") + "/" if run_id else "runs/"


def run_name(run_id: str, record: str) -> str:
    """Return the name of a run's record: `start`, `end`, or the quarantine of a part."""
    return check_name(f"{run_prefix(run_id)}{record}.json")


def _digest(text: str) -> str:
    """Return a string if it is a digest; raises ValueError otherwise."""
    if not is_digest(text):
        raise ValueError(f"{text!r} is not a SHA-256 in 64 lower-case hex digits")
    return text
