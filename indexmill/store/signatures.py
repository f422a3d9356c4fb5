"""Signatures of snapshots, checked before any part of a manifest is parsed.

A signature is a DSSE envelope around an in-toto Statement (v1) whose subject is the SHA-256 of a manifest. Keys are
Ed25519. The manifest's digest determines every byte of a snapshot, so whoever trusts the signer trusts every byte.

    refs/signatures/<version>/<number>.json     the signatures of a version in a store
    signatures.json                             the signatures of an exported folder: a list of envelopes
"""

from __future__ import annotations

import base64
import binascii
import json
import os
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

from indexmill.errors import ConfigurationError, NotTrusted
from indexmill.extras import not_installed
from indexmill.store.canonical import canonical_json, digest_of
from indexmill.store.layout import is_digest

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey

SIGNATURES_FILE = "signatures.json"
"""The file of an exported folder that contains its envelopes."""
ENVELOPE_BYTES = 1 << 16
"""The maximum size of an envelope in bytes."""

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://indexmill.dev/attestation/snapshot/v1"
_PRIVATE, _PUBLIC = "indexmill-ed25519-private:", "indexmill-ed25519:"
_FUTURE = timedelta(minutes=15)
"""How far the signer's clock may be ahead."""


@dataclass(frozen=True, slots=True)
class Statement:
    """A signer's statement about a manifest.

    manifest: the manifest's SHA-256. version: the number under which the signer published it. signed: the time of
    signing in UTC (ISO 8601). provenance: the corpus fingerprint, the code, the run and the parent, as stated by the
    signer.
    """

    manifest: str
    version: int
    signed: str
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """Return the in-toto Statement as canonical JSON."""
        return canonical_json(
            {
                "_type": _STATEMENT_TYPE,
                "subject": [{"name": "manifest.json", "digest": {"sha256": self.manifest}}],
                "predicateType": _PREDICATE_TYPE,
                "predicate": {"version": self.version, "signed": self.signed, **self.provenance},
            }
        )

    @classmethod
    def from_bytes(cls, data: bytes) -> Statement:
        """Read a Statement; raises ValueError, KeyError or TypeError for anything else."""
        content = json.loads(data)
        (subject,) = content["subject"]
        predicate = dict(content["predicate"])
        if (content["_type"], content["predicateType"]) != (_STATEMENT_TYPE, _PREDICATE_TYPE):
            raise ValueError("not the statement of a snapshot")
        manifest, version, signed = subject["digest"]["sha256"], predicate.pop("version"), predicate.pop("signed")
        if not is_digest(manifest) or type(version) is not int:
            raise ValueError("not the statement of a snapshot")
        _time(signed)
        return cls(manifest, version, signed, predicate)


@dataclass(frozen=True, slots=True)
class Trust:
    """A trust policy: the accepted keys, and how many signatures a snapshot needs.

    keys: public keys by signer's name. threshold: the number of different signers that must have signed. least_version:
    the lowest accepted version number, as stated by the signer. most_days: the maximum age of a signature in days. The
    last two prevent an old version from being served as a new one.
    """

    keys: Mapping[str, str]
    threshold: int = 1
    least_version: int = 1
    most_days: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= len({key_id(key) for key in self.keys.values()}):
            raise ConfigurationError(
                f"the threshold is {self.threshold} of {len(self.keys)} keys; expected at least 1, and at most the "
                "number of different keys"
            )

    @classmethod
    def of(cls, policy: Trust | str | os.PathLike[str]) -> Trust:
        """Return the given policy, or read it from a JSON file; raises ConfigurationError for an invalid file."""
        if isinstance(policy, Trust):
            return policy
        try:
            content = json.loads(Path(policy).read_text(encoding="utf-8"))
            fields = {"keys", "threshold", "least_version", "most_days"}
            if not isinstance(content, dict) or not isinstance(content.get("keys"), dict) or content.keys() - fields:
                raise ValueError(f"expected an object with keys and optionally {', '.join(sorted(fields - {'keys'}))}")
            numbers = {name: content[name] for name in fields - {"keys"} if name in content}
            if not all(isinstance(value, (int, float)) and not isinstance(value, bool) for value in numbers.values()):
                raise ValueError("threshold, least_version and most_days must be numbers")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{policy} is not a trust policy: {error}") from error
        return cls(**content)

    def check(self, manifest: str, envelopes: Iterable[bytes], where: object, now: datetime | None = None) -> list[str]:
        """Return the names of a manifest's trusted signers; raises NotTrusted, with the reasons, if there are too few.

        Reads only the envelopes, never the manifest. An unreadable envelope, or one for a different manifest, does not
        count.
        """
        signers: dict[str, str] = {}
        reasons: list[str] = []
        for counts in self._judged(manifest, envelopes, now):
            if isinstance(counts, str):
                reasons.append(counts)
            else:
                signers |= counts[1]
        if len(signers) < self.threshold:
            explanation = "; ".join(dict.fromkeys(reasons)) or "there is none"
            raise NotTrusted(
                f"{where}: the manifest {manifest} has signatures of {len(signers)} trusted keys, expected "
                f"{self.threshold}: {explanation}; it was not read: `indexmill sign` signs a version"
            )
        return sorted(signers.values())

    def statements(
        self, manifest: str, envelopes: Iterable[bytes], now: datetime | None = None
    ) -> list[tuple[Statement, list[str]]]:
        """Return the statements of a manifest's trusted signers, each with its signers' names; see ``check``."""
        judged = self._judged(manifest, envelopes, now)
        return [(verdict[0], sorted(verdict[1].values())) for verdict in judged if not isinstance(verdict, str)]

    def _judged(
        self, manifest: str, envelopes: Iterable[bytes], now: datetime | None
    ) -> Iterator[tuple[Statement, dict[str, str]] | str]:
        """Yield each envelope's statement with its signers' names by key id, or the reason why it does not count."""
        now = datetime.now(UTC) if now is None else now
        trusted = {key_id(key): (name, key) for name, key in self.keys.items()}
        for envelope in envelopes:
            verified = _verified(envelope, {identity: key for identity, (_, key) in trusted.items()})
            if verified is None:
                yield "a signature is not by a trusted key"
                continue
            statement, identities = verified
            age = now - _time(statement.signed)
            if statement.manifest != manifest:
                yield "a signature is for another manifest"
            elif statement.version < self.least_version:
                yield f"a signature is for version {statement.version}, below {self.least_version}"
            elif age < -_FUTURE:
                yield f"a signature is from the future, {statement.signed}"
            elif self.most_days is not None and age > timedelta(days=self.most_days):
                yield f"a signature is from {statement.signed}, older than {self.most_days:g} days"
            else:
                yield statement, {identity: trusted[identity][0] for identity in identities}


def signed(statement: Statement, private: str) -> bytes:
    """Sign a statement and return its envelope as canonical JSON. private: a key from `new_key`."""
    key, payload = _private(private), statement.to_bytes()
    signature = {"keyid": key_id(public_key(private)), "sig": _encoded(key.sign(_pae(payload)))}
    return canonical_json(
        {"payload": _encoded(payload), "payloadType": _PAYLOAD_TYPE, "signatures": [signature]},
    )


def signer(envelope: bytes) -> str | None:
    """Return the key id in an envelope without checking it; None for anything that is not an envelope."""
    try:
        return str(json.loads(envelope)["signatures"][0]["keyid"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def new_key() -> str:
    """Generate a private key, as text on one line."""
    key_class = _ed25519().Ed25519PrivateKey
    return _PRIVATE + _encoded(key_class.generate().private_bytes_raw())


def public_key(private: str) -> str:
    """Return the public key of a private key, as text on one line; raises ConfigurationError for an invalid key."""
    return _PUBLIC + _encoded(_private(private).public_key().public_bytes_raw())


def key_id(public: str) -> str:
    """Return the id of a public key: the SHA-256 of its 32 bytes. Raises ConfigurationError for an invalid key."""
    return digest_of(_raw(public, _PUBLIC, "public"))


def _private(text: str) -> Ed25519PrivateKey:
    key: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(_raw(text, _PRIVATE, "private"))
    return key


def _verified(data: bytes, keys: Mapping[str, str]) -> tuple[Statement, list[str]] | None:
    """Return the statement of an envelope, and the ids of the keys that signed it; None if no key did."""
    if len(data) > ENVELOPE_BYTES:
        return None
    try:
        envelope = json.loads(data)
        if envelope["payloadType"] != _PAYLOAD_TYPE:
            return None
        payload = base64.b64decode(envelope["payload"], validate=True)
        signatures = {
            str(entry["keyid"]): base64.b64decode(entry["sig"], validate=True) for entry in envelope["signatures"]
        }
        signers = [
            identity
            for identity, signature in signatures.items()
            if identity in keys and _signs(keys[identity], payload, signature)
        ]
        return (Statement.from_bytes(payload), signers) if signers else None
    except (ValueError, KeyError, TypeError, RecursionError):
        return None


def _signs(public: str, payload: bytes, signature: bytes) -> bool:
    from cryptography.exceptions import InvalidSignature

    key: Ed25519PublicKey = _ed25519().Ed25519PublicKey.from_public_bytes(_raw(public, _PUBLIC, "public"))
    try:
        key.verify(signature, _pae(payload))
    except InvalidSignature:
        return False
    return True


def _pae(payload: bytes) -> bytes:
    """Return the bytes to sign: DSSE's pre-authentication encoding of the payload and its type."""
    kind = _PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _raw(text: str, prefix: str, kind: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip().removeprefix(prefix), validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if not text.strip().startswith(prefix) or len(raw) != 32:
        raise ConfigurationError(f"this is not a {kind} key: expected {prefix} and 32 bytes in base64")
    return raw


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _time(text: str) -> datetime:
    time = datetime.fromisoformat(text)
    if time.tzinfo is None:
        raise ValueError(f"{text} has no time zone")
    return time


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise not_installed("a signature", "cryptography", error) from error
    return ed25519
