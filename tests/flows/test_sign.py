"""Signed versions: what a reader with a policy opens, and every try to have something else opened."""

from __future__ import annotations

import base64
import json
import shutil
import stat
from collections.abc import Callable
from pathlib import Path
from unittest.mock import patch

import pytest

import indexmill
from flows.copy import copy_version
from flows.export import export_snapshot
from flows.promote import promote
from flows.rollback import roll_back
from flows.sign import sign
from indexmill.errors import ConfigurationError, CorruptBlob, NotTrusted
from indexmill.snapshot import Snapshot
from indexmill.store.layout import BRANCH, blob_path, ref_name, signature_name
from indexmill.store.manifest import Manifest
from indexmill.store.signatures import SIGNATURES_FILE, Statement, Trust, new_key, public_key
from storage import refs, runs, signature_records
from storage.folder import FolderStore, open_folder
from tasks.core.environment import code_digest
from tasks.core.report import Silent
from tests.flows.children import build
from tests.flows.commands import Run
from tests.flows.readers import flip_byte
from tests.flows.versions import Versions, bare

ADA, EVE = new_key(), new_key()
TRUST = Trust({"ada": public_key(ADA)})


@pytest.fixture
def store(two_versions: FolderStore) -> FolderStore:
    for version in (1, 2):
        sign(two_versions, version, ADA)
    return two_versions


def opened(where: Path | str, trust: Trust = TRUST, version: int | None = None) -> Snapshot:
    return indexmill.open(where, version, trust=trust)


def test_a_signed_version_opens_and_answers(store: FolderStore, versions: Versions) -> None:
    with opened(store.root) as snapshot:
        assert snapshot.version == 2
    assert bare(store.root) == versions.answered[1]
    run = runs.list_runs(store)[-1]
    assert (run.start.command, run.state, run.version) == ("sign", "done", 2)
    assert ADA.partition(":")[2].strip() not in json.dumps(run.start.details)


def missing(store: FolderStore) -> None:
    store.delete(signature_name(2, 1))


def by_another(store: FolderStore) -> None:
    missing(store)
    sign(store, 2, EVE)


def of_another_manifest(store: FolderStore) -> None:
    store.replace(signature_name(2, 1), signature_records.envelopes(store, 1)[0])


def old_served_as_new(store: FolderStore) -> None:
    """An operator lets the newest ref name the manifest of version 1, with its own signature."""
    ref = refs.read(store, 2).model_copy(update={"manifest": refs.read(store, 1).manifest})
    store.replace(ref_name(BRANCH, 2), ref.to_bytes())
    of_another_manifest(store)


def flipped(store: FolderStore) -> None:
    flip_byte(store.root / blob_path(refs.read(store, 2).manifest))


def swapped(store: FolderStore) -> None:
    one, other = (store.root / blob_path(refs.read(store, version).manifest) for version in (1, 2))
    data = one.read_bytes()
    other.unlink()
    other.write_bytes(data)


@pytest.mark.parametrize(
    ("attack", "trust", "reason"),
    [
        (missing, TRUST, "there is none"),
        (by_another, TRUST, "a signature is not by a trusted key"),
        (of_another_manifest, TRUST, "a signature is for another manifest"),
        (old_served_as_new, Trust(TRUST.keys, least_version=2), "a signature is for version 1, below 2"),
        (flipped, TRUST, "is damaged"),
        (swapped, TRUST, "is damaged"),
        (lambda store: None, Trust(TRUST.keys, most_days=1e-9), "older than 1e-09 days"),
        (
            lambda store: None,
            Trust({**TRUST.keys, "eve": public_key(EVE)}, threshold=2),
            "of 1 trusted keys, expected 2",
        ),
    ],
    ids=lambda one: getattr(one, "__name__", ""),
)
def test_nothing_is_parsed_of_what_is_not_signed_so(
    store: FolderStore, attack: Callable[[FolderStore], None], trust: Trust, reason: str
) -> None:
    attack(store)
    with patch.object(Manifest, "from_bytes", side_effect=AssertionError("parsed")):
        for take in (
            lambda: opened(store.root, trust, 2),
            lambda: indexmill.follow(store.root, trust=trust, poll=None),
            lambda: copy_version(open_folder(store.root), 2, f"{store.root}-copy", trust=trust, progress=Silent()),
            lambda: promote(open_folder(store.root), 2, "prod", trust=trust),
        ):
            with pytest.raises((NotTrusted, CorruptBlob), match=reason):
                take()
    assert not Path(f"{store.root}-copy").exists()
    assert refs.aliases(store) == {}


def test_blobs_that_are_swapped_are_noticed_when_they_are_used(store: FolderStore) -> None:
    with opened(store.root) as snapshot:
        one, other = snapshot.shards("passages")[:2]
        swapped_with = store.root / blob_path(other.digest)
        path = store.root / blob_path(one.digest)
        data = swapped_with.read_bytes()
        path.unlink()
        path.write_bytes(data)
        with pytest.raises(CorruptBlob):
            snapshot.table("passages")


def test_signatures_travel_with_copies_and_exports(store: FolderStore, versions: Versions) -> None:
    target = store.root.parent / "target"
    for _ in range(2):
        copy_version(store, 2, str(target), trust=TRUST, progress=Silent())
    assert len(signature_records.envelopes(open_folder(target), 1)) == 1
    with opened(target) as snapshot:
        assert snapshot.version == 1
    folder = store.root.parent / "exported"
    export_snapshot(store, 2, folder, progress=Silent())
    with opened(folder) as snapshot:
        assert snapshot.manifest.corpus.documents
    (folder / SIGNATURES_FILE).write_text("[" * 100_000)
    with pytest.raises(NotTrusted, match="there is none"):
        opened(folder)
    (folder / SIGNATURES_FILE).unlink()
    with pytest.raises(NotTrusted):
        opened(folder)
    assert bare(folder) == versions.answered[1]


def test_what_goes_back_is_signed_again(store: FolderStore) -> None:
    roll_back(store, 1)
    with pytest.raises(NotTrusted):
        opened(store.root)
    sign(store, 3, ADA)
    with opened(store.root, Trust(TRUST.keys, least_version=3)) as snapshot:
        assert snapshot.version == 3


def test_a_follower_takes_a_version_once_it_is_signed(two_versions: FolderStore) -> None:
    promote(two_versions, 1, "prod")
    sign(two_versions, 1, ADA)
    with indexmill.follow(two_versions.root, "prod", poll=None, trust=TRUST) as index:
        promote(two_versions, 2, "prod")
        assert not index.look()
        assert index.refusal is not None
        assert "has signatures of 0 trusted keys" in index.refusal.reason
        sign(two_versions, 2, ADA)
        assert index.look()


def test_the_commands_make_keys_sign_and_check(
    two_versions: FolderStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run, root = Run(capsys, "--store", two_versions.root), two_versions.root
    made = run.json("sign", "--new-key", tmp_path / "key")
    assert stat.S_IMODE((tmp_path / "key").stat().st_mode) == 0o600
    assert (tmp_path / "key").read_text().strip() not in run.out + run.err
    (tmp_path / "trust.json").write_text(json.dumps({"keys": {"release": made["key"]}}))
    trust = ("--trust", tmp_path / "trust.json")
    assert run("verify", *trust) == 3
    assert "there is none" in run.err
    assert run("query", "bridge", *trust) == 3
    assert run("promote", 2, "prod", *trust) == 3
    assert run("sign", "--key", tmp_path / "key") == 0
    assert run.out.startswith("signed version 2, manifest ")
    assert run.json("sign", 2, "--key", tmp_path / "key")["key"] == made["key"]
    for words in (("verify",), ("query", "bridge"), ("show",), ("promote", 2, "prod")):
        assert run(*words, *trust) == 0, run.err
    other = Run(capsys)
    assert other("copy", root, tmp_path / "copy", *trust) == 0
    assert other("verify", "--store", tmp_path / "copy", *trust) == 0
    assert run("export", 2, tmp_path / "out") == 0
    assert other("verify", "--store", tmp_path / "out", *trust) == 0
    for words in (
        ("sign",),
        ("sign", "--key", tmp_path / "absent"),
        ("sign", "--key", tmp_path / "trust.json"),
        ("sign", "--new-key", tmp_path / "key"),
        ("sign", "--new-key", tmp_path / "absent" / "key"),
        ("sign", 9, "--key", tmp_path / "key"),
        ("verify", "--trust", tmp_path / "absent"),
    ):
        assert run(*words) == 2, words


def statement(store: FolderStore, version: int) -> Statement:
    """What the last signature of a version says."""
    payload = json.loads(signature_records.envelopes(store, version)[-1])["payload"]
    return Statement.from_bytes(base64.b64decode(payload))


def test_a_statement_says_what_a_version_was_made_from(store: FolderStore) -> None:
    first, second = (refs.read(store, version) for version in (1, 2))
    said = statement(store, 2).provenance
    with indexmill.open(store.root, 2) as snapshot:
        assert said["corpus"] == snapshot.manifest.corpus.model_dump(mode="json")
        assert said["environment"] == snapshot.manifest.environment
    assert (said["run"], said["parent"], said["parent_manifest"]) == (second.run_id, 1, first.manifest)
    assert said["code"] == {"version": indexmill.__version__, "digest": code_digest()}
    assert statement(store, 1).provenance.keys() == said.keys() - {"parent_manifest"}


def test_a_version_that_was_restored_or_copied_names_the_code_that_built_it_if_the_store_knows(
    store: FolderStore, tmp_path: Path
) -> None:
    again = roll_back(store, 1)
    sign(store, again.version, ADA)
    assert statement(store, 3).provenance["code"] == statement(store, 1).provenance["code"]
    copied = copy_version(store, 2, str(tmp_path / "copy"), progress=Silent())
    target = open_folder(tmp_path / "copy")
    sign(target, copied.version, EVE)
    assert "code" not in statement(target, 1).provenance


def test_verify_tells_what_trusted_signers_say(
    store: FolderStore, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sign(store, 2, EVE)
    (tmp_path / "trust.json").write_text(json.dumps({"keys": {"ada": public_key(ADA)}}))
    run, trust = Run(capsys, "--store", store.root), ("--trust", tmp_path / "trust.json")
    (said,) = run.json("verify", *trust)["signatures"]
    assert (said["signers"], said["version"]) == (["ada"], 2)
    assert said["provenance"]["run"] == refs.read(store, 2).run_id
    assert run("verify", *trust) == 0
    assert f"signed by ada as version 2 at {said['signed']}: run {said['provenance']['run']}, indexmill " in run.out
    assert "signatures" not in run.json("verify")
    assert run("export", 2, tmp_path / "out") == 0
    assert Run(capsys).json("verify", "--store", tmp_path / "out", *trust)["signatures"] == [said]


def test_signing_needs_a_whole_version(store: FolderStore) -> None:
    flip_byte(store.root / blob_path(refs.read(store, 2).manifest))
    with pytest.raises(CorruptBlob):
        sign(open_folder(store.root), 2, EVE)
    assert len(signature_records.envelopes(store, 2)) == 1
    shutil.rmtree(store.root / "blobs")
    with pytest.raises(CorruptBlob):
        sign(open_folder(store.root), 1, EVE)


def test_a_build_signs_what_it_publishes_and_what_was_left_unsigned(
    two_versions: FolderStore, versions: Versions, tmp_path: Path
) -> None:
    (tmp_path / "key").write_text(f"{ADA}\n")
    signing = versions.settings(two_versions.root) | {"run": {"signing_key_file": str(tmp_path / "key")}}
    for _ in range(2):
        assert not build(signing).published
        assert len(signature_records.envelopes(two_versions, 2)) == 1
    with opened(two_versions.root) as snapshot:
        assert "signing_key_file" not in json.dumps(snapshot.manifest.configuration)
    versions.corpus.with_name("third.jsonl").write_text('{"id": "a", "title": "A", "text": "Ada Marl was here."}\n')
    third = signing | {"corpus": {"paths": [str(versions.corpus.with_name("third.jsonl"))]}}
    assert build(third).published
    with opened(two_versions.root) as snapshot:
        assert snapshot.version == 3
    (tmp_path / "key").write_text("no key")
    with pytest.raises(ConfigurationError, match="it contains no private key"):
        build(signing)
