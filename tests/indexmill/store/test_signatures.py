"""Signatures: what counts, and every try that does not."""

from __future__ import annotations

import base64
import json
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from indexmill.errors import ConfigurationError, NotTrusted
from indexmill.store.signatures import Statement, Trust, key_id, new_key, public_key, signed

MANIFEST, OTHER = "a" * 64, "b" * 64
ADA, BOB, EVE = (f"indexmill-ed25519-private:{base64.b64encode(bytes([byte]) * 32).decode()}" for byte in (1, 2, 3))
NOW = datetime(2026, 2, 10, tzinfo=UTC)
SAID = Statement(MANIFEST, 7, "2026-02-01T02:00:00Z", {"corpus": "f"})


def trust(*keys: str, **more: Any) -> Trust:
    return Trust({f"signer {number}": public_key(key) for number, key in enumerate(keys)}, **more)


def check(policy: Trust, *envelopes: bytes, manifest: str = MANIFEST) -> list[str]:
    return policy.check(manifest, envelopes, "here", NOW)


def test_what_counts_is_told_with_its_signers() -> None:
    later = Statement(MANIFEST, 8, "2026-02-02T02:00:00Z", {"run": "r"})
    envelopes = [
        signed(SAID, ADA),
        signed(later, BOB),
        signed(SAID, EVE),
        signed(Statement(OTHER, 7, SAID.signed), ADA),
    ]
    told = trust(ADA, BOB, least_version=7).statements(MANIFEST, envelopes, NOW)
    assert told == [(SAID, ["signer 0"]), (later, ["signer 1"])]
    assert trust(ADA, BOB, least_version=8).statements(MANIFEST, envelopes, NOW) == [(later, ["signer 1"])]


def changed(envelope: bytes, **fields: Any) -> bytes:
    return json.dumps(json.loads(envelope) | fields).encode()


def test_a_signature_of_a_trusted_key_counts() -> None:
    envelope = signed(SAID, ADA)
    assert check(trust(ADA), envelope) == ["signer 0"]
    assert check(trust(BOB, ADA), b"{", signed(SAID, EVE), envelope) == ["signer 1"]
    assert check(trust(ADA, BOB, threshold=2), envelope, signed(SAID, BOB)) == ["signer 0", "signer 1"]
    payload = json.loads(base64.b64decode(json.loads(envelope)["payload"]))
    assert payload["subject"] == [{"name": "manifest.json", "digest": {"sha256": MANIFEST}}]
    assert payload["predicate"] == {"version": 7, "signed": "2026-02-01T02:00:00Z", "corpus": "f"}
    assert signed(SAID, ADA) == envelope  # Ed25519 is deterministic


def test_the_envelope_is_what_the_specification_says() -> None:
    from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PublicKey

    envelope = json.loads(signed(SAID, ADA))
    payload = base64.b64decode(envelope["payload"])
    raw = base64.b64decode(public_key(ADA).partition(":")[2])
    said = b"DSSEv1 28 application/vnd.in-toto+json " + str(len(payload)).encode() + b" " + payload
    Ed25519PublicKey.from_public_bytes(raw).verify(base64.b64decode(envelope["signatures"][0]["sig"]), said)
    assert envelope["signatures"][0]["keyid"] == key_id(public_key(ADA))


@pytest.mark.parametrize(
    ("policy", "envelopes", "reason"),
    [
        (trust(ADA), [], "there is none"),
        (trust(ADA), [signed(SAID, EVE)], "a signature is not by a trusted key"),
        (trust(ADA), [signed(Statement(OTHER, 7, SAID.signed), ADA)], "a signature is for another manifest"),
        (trust(ADA, least_version=8), [signed(SAID, ADA)], "a signature is for version 7, below 8"),
        (trust(ADA, most_days=8.5), [signed(SAID, ADA)], "older than 8.5 days"),
        (trust(ADA), [signed(Statement(MANIFEST, 7, "2026-02-10T01:00:00Z"), ADA)], "a signature is from the future"),
        (trust(ADA, BOB, threshold=2), [signed(SAID, ADA)] * 3, "signatures of 1 trusted keys, expected 2"),
    ],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_what_a_policy_does_not_accept_is_refused_with_the_reason(
    policy: Trust, envelopes: list[bytes], reason: str
) -> None:
    with pytest.raises(NotTrusted, match=reason):
        check(policy, *envelopes)


def test_a_changed_envelope_counts_for_nothing() -> None:
    envelope = signed(SAID, ADA)
    found = json.loads(envelope)
    forged = base64.b64encode(Statement(OTHER, 7, SAID.signed).to_bytes()).decode()
    sig = base64.b64decode(found["signatures"][0]["sig"])
    flipped = base64.b64encode(bytes([sig[0] ^ 1]) + sig[1:]).decode()
    keyid = found["signatures"][0]["keyid"]
    tries = [
        changed(envelope, payload=forged),
        changed(envelope, payloadType="text/plain"),
        changed(envelope, signatures=[{"keyid": keyid, "sig": flipped}]),
        changed(envelope, signatures=[{"keyid": keyid, "sig": ""}]),
        changed(envelope, signatures=[{"keyid": key_id(public_key(BOB)), "sig": found["signatures"][0]["sig"]}]),
        changed(envelope, signatures=[]),
        changed(envelope, signatures=None),
        changed(envelope, payload="!"),
        changed(envelope, extra="x" * (1 << 16)),
        b"",
        b"[]",
        b"[" * 10_000,
        b"\xff",
    ]
    for tried in tries:
        for manifest in (MANIFEST, OTHER):
            with pytest.raises(NotTrusted):
                check(trust(ADA, BOB), tried, manifest=manifest)


def test_every_flipped_bit_of_a_statement_is_noticed() -> None:
    envelope = json.loads(signed(SAID, ADA))
    payload = base64.b64decode(envelope["payload"])
    for at in range(0, len(payload), 7):
        other = bytearray(payload)
        other[at] ^= 1
        with pytest.raises(NotTrusted):
            check(trust(ADA), json.dumps(envelope | {"payload": base64.b64encode(other).decode()}).encode())


def test_a_signed_payload_that_is_no_statement_of_a_snapshot_counts_for_nothing() -> None:
    class Other(Statement):
        def to_bytes(self) -> bytes:
            return b'{"_type": "https://in-toto.io/Statement/v1", "subject": []}'

    with pytest.raises(NotTrusted):
        check(trust(ADA), signed(Other(MANIFEST, 7, SAID.signed), ADA))
    with pytest.raises(NotTrusted):
        check(trust(ADA), signed(Statement(MANIFEST, 7, "2026-02-01"), ADA))


def test_a_policy_comes_from_a_file(tmp_path: Path) -> None:
    path = tmp_path / "trust.json"
    path.write_text(json.dumps({"keys": {"release": public_key(ADA)}, "least_version": 7, "most_days": 30}))
    assert check(Trust.of(path), signed(SAID, ADA)) == ["release"]
    assert Trust.of(Trust.of(path)).least_version == 7
    late = datetime(2026, 3, 4, tzinfo=UTC)
    with pytest.raises(NotTrusted):
        Trust.of(path).check(MANIFEST, [signed(SAID, ADA)], "here", late)
    assert late - NOW > timedelta(days=20)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "[]",
        "{}",
        '{"keys": {}}',
        '{"keys": {"a": "no key"}}',
        '{"keys": {"a": "indexmill-ed25519:AAAA"}}',
        json.dumps({"keys": {"a": public_key(ADA)}, "threshold": 2}),
        json.dumps({"keys": {"a": public_key(ADA), "b": public_key(ADA)}, "threshold": 2}),
        json.dumps({"keys": {"a": public_key(ADA)}, "threshold": 0}),
        json.dumps({"keys": {"a": public_key(ADA)}, "threshold": True}),
        json.dumps({"keys": {"a": public_key(ADA)}, "treshold": 1}),
        json.dumps({"keys": {"a": ADA}}),
    ],
)
def test_what_is_no_policy_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "trust.json"
    path.write_text(text)
    with pytest.raises(ConfigurationError):
        Trust.of(path)
    with pytest.raises(ConfigurationError):
        Trust.of(tmp_path / "absent.json")


def test_new_keys_differ() -> None:
    assert check(trust(key := new_key()), signed(SAID, key)) == ["signer 0"]
    assert new_key() != new_key()


def test_what_is_no_private_key_signs_nothing() -> None:
    for text in ("", "x", public_key(ADA), ADA[:-4]):
        with pytest.raises(ConfigurationError, match="not a private key"):
            signed(SAID, text)
    assert public_key(f"{ADA}\n") == public_key(ADA)
