"""Signatures of snapshots: who vouches for a manifest, checked before any of it is parsed.

A signature is a DSSE envelope around an in-toto Statement (v1) whose subject is the SHA-256 of a manifest. Its keys are
Ed25519. Everything in a snapshot follows from the manifest's digest, so whoever trusts the signer trusts every byte.

    refs/signatures/<version>/<number>.json     of a version of a store
    signatures.json                             of an exported folder: a list of envelopes
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
"""The envelopes of an exported folder."""
ENVELOPE_BYTES = 1 << 16
"""The most bytes of an envelope."""

_PAYLOAD_TYPE = "application/vnd.in-toto+json"
_STATEMENT_TYPE = "https://in-toto.io/Statement/v1"
_PREDICATE_TYPE = "https://indexmill.dev/attestation/snapshot/v1"
_PRIVATE, _PUBLIC = "indexmill-ed25519-private:", "indexmill-ed25519:"
_FUTURE = timedelta(minutes=15)
"""How far ahead the signer's clock may be."""


@dataclass(frozen=True, slots=True)
class Statement:
    """What a signer says of a manifest.

    manifest: its SHA-256. version: the number under which the signer published it. signed: the time in UTC, ISO 8601.
    provenance: the corpus fingerprint, the code, the run and the parent, as the signer knows them.
    """

    manifest: str
    version: int
    signed: str
    provenance: Mapping[str, Any] = field(default_factory=dict)

    def to_bytes(self) -> bytes:
        """The in-toto Statement as canonical JSON."""
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
        found = json.loads(data)
        (subject,) = found["subject"]
        predicate = dict(found["predicate"])
        if (found["_type"], found["predicateType"]) != (_STATEMENT_TYPE, _PREDICATE_TYPE):
            raise ValueError("not the statement of a snapshot")
        manifest, version, signed = subject["digest"]["sha256"], predicate.pop("version"), predicate.pop("signed")
        if not is_digest(manifest) or type(version) is not int:
            raise ValueError("not the statement of a snapshot")
        _time(signed)
        return cls(manifest, version, signed, predicate)


@dataclass(frozen=True, slots=True)
class Trust:
    """Whose signatures count, and how many a snapshot needs.

    keys: public keys by the name of the signer. threshold: the number of different signers that must have signed.
    least_version: the lowest version number, of the signer's count, that is accepted. most_days: the greatest age of a
    signature. Both keep an old version from being served as a new one.
    """

    keys: Mapping[str, str]
    threshold: int = 1
    least_version: int = 1
    most_days: float | None = None

    def __post_init__(self) -> None:
        if not 1 <= self.threshold <= len({key_id(key) for key in self.keys.values()}):
            raise ConfigurationError(
                f"the threshold is {self.threshold} of {len(self.keys)} keys; expected at least 1, and as many "
                "different keys as it asks for"
            )

    @classmethod
    def of(cls, given: Trust | str | os.PathLike[str]) -> Trust:
        """The policy itself, or the one in a file of JSON; raises ConfigurationError for any other content."""
        if isinstance(given, Trust):
            return given
        try:
            found = json.loads(Path(given).read_text(encoding="utf-8"))
            known = {"keys", "threshold", "least_version", "most_days"}
            if not isinstance(found, dict) or not isinstance(found.get("keys"), dict) or found.keys() - known:
                raise ValueError(f"expected an object with keys and, if need be, {', '.join(sorted(known - {'keys'}))}")
            numbers = {name: found[name] for name in known - {"keys"} if name in found}
            if not all(isinstance(one, (int, float)) and not isinstance(one, bool) for one in numbers.values()):
                raise ValueError("threshold, least_version and most_days are numbers")
        except (OSError, ValueError) as error:
            raise ConfigurationError(f"{given} is no policy of trust: {error}") from error
        return cls(**found)

    def check(self, manifest: str, envelopes: Iterable[bytes], where: object, now: datetime | None = None) -> list[str]:
        """The names of the signers of a manifest that count; raises NotTrusted if they are too few, saying why.

        Reads nothing but the envelopes. An envelope that cannot be read, or is of another manifest, counts for nothing.
        """
        signers: dict[str, str] = {}
        reasons: list[str] = []
        for counts in self._judged(manifest, envelopes, now):
            if isinstance(counts, str):
                reasons.append(counts)
            else:
                signers |= counts[1]
        if len(signers) < self.threshold:
            told = "; ".join(dict.fromkeys(reasons)) or "there is none"
            raise NotTrusted(
                f"{where}: the manifest {manifest} has signatures of {len(signers)} trusted keys, expected "
                f"{self.threshold}: {told}; nothing of it was read: `indexmill sign` signs a version"
            )
        return sorted(signers.values())

    def statements(
        self, manifest: str, envelopes: Iterable[bytes], now: datetime | None = None
    ) -> list[tuple[Statement, list[str]]]:
        """What those say of a manifest whose signatures count, each with the names of its signers; see ``check``."""
        judged = self._judged(manifest, envelopes, now)
        return [(one[0], sorted(one[1].values())) for one in judged if not isinstance(one, str)]

    def _judged(
        self, manifest: str, envelopes: Iterable[bytes], now: datetime | None
    ) -> Iterator[tuple[Statement, dict[str, str]] | str]:
        """The statement of each envelope, with its signers' names by key id; or the reason why it does not count."""
        now = datetime.now(UTC) if now is None else now
        known = {key_id(key): (name, key) for name, key in self.keys.items()}
        for envelope in envelopes:
            verified = _verified(envelope, {identity: key for identity, (_, key) in known.items()})
            if verified is None:
                yield "one is of no trusted key"
                continue
            statement, identities = verified
            age = now - _time(statement.signed)
            if statement.manifest != manifest:
                yield "one is of another manifest"
            elif statement.version < self.least_version:
                yield f"one is of version {statement.version}, below {self.least_version}"
            elif age < -_FUTURE:
                yield f"one is of the future, {statement.signed}"
            elif self.most_days is not None and age > timedelta(days=self.most_days):
                yield f"one is of {statement.signed}, older than {self.most_days:g} days"
            else:
                yield statement, {identity: known[identity][0] for identity in identities}


def signed(statement: Statement, private: str) -> bytes:
    """The envelope of a statement, as canonical JSON. private: a key as `new_key` makes it."""
    key, payload = _private(private), statement.to_bytes()
    signature = {"keyid": key_id(public_key(private)), "sig": _encoded(key.sign(_pae(payload)))}
    return canonical_json(
        {"payload": _encoded(payload), "payloadType": _PAYLOAD_TYPE, "signatures": [signature]},
    )


def signer(envelope: bytes) -> str | None:
    """The id of the key that an envelope of `signed` names, unchecked; None for anything else."""
    try:
        return str(json.loads(envelope)["signatures"][0]["keyid"])
    except (ValueError, KeyError, TypeError, IndexError, RecursionError):
        return None


def new_key() -> str:
    """A new private key, as text on one line."""
    key_class = _ed25519().Ed25519PrivateKey
    return _PRIVATE + _encoded(key_class.generate().private_bytes_raw())


def public_key(private: str) -> str:
    """The public key of a private one, as text on one line; raises ConfigurationError if it is none."""
    return _PUBLIC + _encoded(_private(private).public_key().public_bytes_raw())


def key_id(public: str) -> str:
    """The name of a public key in envelopes: the SHA-256 of its 32 bytes. Raises ConfigurationError if it is none."""
    return digest_of(_raw(public, _PUBLIC, "public"))


def _private(text: str) -> Ed25519PrivateKey:
    key: Ed25519PrivateKey = _ed25519().Ed25519PrivateKey.from_private_bytes(_raw(text, _PRIVATE, "private"))
    return key


def _verified(data: bytes, keys: Mapping[str, str]) -> tuple[Statement, list[str]] | None:
    """The statement of an envelope, and the ids of the keys that signed it; None if none of the keys did."""
    if len(data) > ENVELOPE_BYTES:
        return None
    try:
        envelope = json.loads(data)
        if envelope["payloadType"] != _PAYLOAD_TYPE:
            return None
        payload = base64.b64decode(envelope["payload"], validate=True)
        given = {str(one["keyid"]): base64.b64decode(one["sig"], validate=True) for one in envelope["signatures"]}
        signers = [
            identity for identity, sig in given.items() if identity in keys and _signs(keys[identity], payload, sig)
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
    """What is signed: DSSE's pre-authentication encoding of the payload and its type."""
    kind = _PAYLOAD_TYPE.encode()
    return b"DSSEv1 %d %b %d %b" % (len(kind), kind, len(payload), payload)


def _raw(text: str, prefix: str, kind: str) -> bytes:
    try:
        raw = base64.b64decode(text.strip().removeprefix(prefix), validate=True)
    except (ValueError, binascii.Error):
        raw = b""
    if not text.strip().startswith(prefix) or len(raw) != 32:
        raise ConfigurationError(f"this is no {kind} key: expected {prefix} and 32 bytes in base64")
    return raw


def _encoded(data: bytes) -> str:
    return base64.b64encode(data).decode("ascii")


def _time(text: str) -> datetime:
    found = datetime.fromisoformat(text)
    if found.tzinfo is None:
        raise ValueError(f"{text} names no time zone")
    return found


def _ed25519() -> Any:
    try:
        from cryptography.hazmat.primitives.asymmetric import ed25519
    except ImportError as error:
        raise not_installed("a signature", "cryptography", error) from error
    return ed25519
