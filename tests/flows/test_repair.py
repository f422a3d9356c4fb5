"""`indexmill repair` on real stores with real damage."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from flows.export import export_snapshot
from flows.promote import promote
from flows.repair import Repaired
from flows.repair import repair as _repair
from indexmill.command import main
from indexmill.errors import BadInput, CorruptBlob, SnapshotNotFound
from indexmill.store.bucket import Bucket
from indexmill.store.layout import STORE_FILE, alias_name, blob_path, export_name, ref_name, tombstone_name
from indexmill.store.manifest import Manifest
from indexmill.store.reader import StoreReader
from indexmill.store.verify import verify
from storage import lineage, runs
from storage.copies import open_copy
from storage.folder import init_folder, open_folder
from storage.lease import acquire
from tasks.core.report import Silent
from tests.flows.children import Forks, build, settings
from tests.flows.versions import Versions, make_versions
from tests.storage.quick import quick_folder
from tests.storage.services import bucket_of, s3_service


@pytest.fixture(scope="module")
def versions() -> Iterator[Versions]:
    with quick_folder() as folder:
        made = make_versions(folder)
        promote(open_folder(made.root), 1, "prod")
        export_snapshot(open_folder(made.root), 1, folder / "exported", progress=Silent())
        yield made


@pytest.fixture
def root(versions: Versions, quick: Path) -> Path:
    """A copy of a store with two versions, to be damaged."""
    return Path(shutil.copytree(versions.root, quick / "store"))


@pytest.fixture
def mirror(versions: Versions, quick: Path) -> Path:
    """Another copy of it."""
    return Path(shutil.copytree(versions.root, quick / "mirror"))


def repair(root: Path | str, *copies: Path | str, **options: Any) -> Repaired:
    return _repair(root, [open_copy(copy) for copy in copies], progress=Silent(), **options)


def manifest(root: Path, version: int) -> Manifest:
    reader = StoreReader(root)
    return reader.manifest(reader.ref(version).manifest)


def only(root: Path, version: int, name: str) -> str:
    """The digest of an artifact that a version alone has."""
    other = {artifact.digest for artifact in manifest(root, 3 - version).artifacts}
    return next(
        artifact.digest
        for artifact in manifest(root, version).artifacts
        if artifact.name.startswith(name) and artifact.digest not in other
    )


def private(root: Path, version: int) -> str:
    """The digest of a part of a version alone that no reader needs."""
    store = open_folder(root)
    served = {artifact.digest for number in (1, 2) for artifact in manifest(root, number).artifacts}
    parts = [
        {
            digest
            for part in lineage.read(store, manifest(root, number).lineage).entries
            for digest in part.outputs.values()
        }
        for number in (version, 3 - version)
    ]
    return min(parts[0] - parts[1] - served)


def change(path: Path, changed: Callable[[bytes], bytes]) -> None:
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(changed(data))


def damage(root: Path, digest: str, how: str) -> Path:
    path = root / blob_path(digest)
    if how == "missing":
        path.unlink()
    elif how == "flipped":
        change(path, lambda data: data[:-9] + bytes([data[-9] ^ 1]) + data[-8:])
    else:
        change(path, lambda data: data[: len(data) // 2])
    return path


def tree(root: Path) -> dict[str, tuple[bytes, int]]:
    return {
        path.relative_to(root).as_posix(): (path.read_bytes(), path.stat().st_mtime_ns)
        for path in root.rglob("*")
        if path.is_file()
    }


def ok(root: Path) -> bool:
    return all(verify(StoreReader(root), version).ok for version in (1, 2))


def test_a_whole_store_is_only_read(root: Path) -> None:
    before = tree(root)
    done = repair(root)
    assert (done.whole, done.versions, done.findings) == (True, (1, 2), ())
    needed = {artifact.digest for number in (1, 2) for artifact in manifest(root, number).artifacts}
    assert done.blobs > len(needed)
    assert done.bytes > sum((root / blob_path(digest)).stat().st_size for digest in needed)
    assert tree(root) == before


@pytest.mark.parametrize("how", ["missing", "flipped", "cut"])
@pytest.mark.parametrize("name", ["passages/", "vectors/", "mention_links/", "manifest", "lineage", "part"])
def test_what_the_newest_version_needs_is_made_again_by_a_build(
    versions: Versions, root: Path, name: str, how: str
) -> None:
    chosen = {
        "manifest": lambda: versions.manifests[1],
        "lineage": lambda: manifest(root, 2).lineage,
        "part": lambda: private(root, 2),
    }.get(name, lambda: only(root, 2, name))()
    whole = (root / blob_path(chosen)).read_bytes()
    path = damage(root, chosen, how)
    done = repair(root)
    finding = next(one for one in done.findings if one.name == blob_path(chosen))
    assert (finding.versions, finding.outcome, finding.damage) == (
        (2,),
        "rebuild",
        "missing" if how == "missing" else "damaged",
    )
    assert not done.whole
    assert not path.exists()
    outcome = build(versions.settings(root))
    assert (outcome.published, outcome.manifest) == (False, versions.manifests[1])
    assert path.read_bytes() == whole
    assert ok(root)
    assert repair(root).findings == ()


@pytest.mark.parametrize("how", ["missing", "flipped", "cut"])
def test_what_only_an_older_version_needs_comes_back_from_a_copy_alone(root: Path, mirror: Path, how: str) -> None:
    path = damage(root, only(root, 1, "vectors/"), how)
    done = repair(root)
    assert [(one.outcome, one.versions) for one in done.findings] == [("lost", (1,))]
    assert not done.whole
    assert not path.exists()
    done = repair(root, mirror)
    assert [(one.outcome, one.source, one.damage) for one in done.findings] == [("restored", str(mirror), "missing")]
    assert done.whole
    assert path.read_bytes() == (mirror / path.relative_to(root)).read_bytes()
    assert path.stat().st_mode & 0o222 == 0
    assert ok(root)


def test_a_part_of_an_older_version_that_no_reader_needs_is_removed_and_not_missed(root: Path) -> None:
    path = damage(root, private(root, 1), "flipped")
    done = repair(root)
    assert [one.outcome for one in done.findings] == ["dropped"]
    assert done.whole
    assert not path.exists()
    assert repair(root).findings == ()
    assert ok(root)


def test_where_a_lineage_is_damaged_too_nobody_can_tell_what_a_blob_is(root: Path) -> None:
    chosen, of = private(root, 2), manifest(root, 2).lineage
    for digest in (chosen, of):
        damage(root, digest, "flipped")
    told = {one.name: one.what for one in repair(root, dry_run=True).findings}
    assert told == {blob_path(chosen): "a blob of unknown use", blob_path(of): "the lineage"}


def test_an_export_brings_back_its_version_and_its_manifest(versions: Versions, root: Path) -> None:
    paths = [
        damage(root, digest, "flipped")
        for digest in (versions.manifests[0], only(root, 1, "vectors/"), only(root, 1, "mention_links/"))
    ]
    done = repair(root, versions.root.parent / "exported")
    assert [one.outcome for one in done.findings] == ["restored"] * 3
    assert done.whole
    assert all(path.exists() for path in paths)
    assert ok(root)


def test_damage_in_a_copy_is_passed_over(root: Path, mirror: Path, quick: Path) -> None:
    other = Path(shutil.copytree(mirror, quick / "other"))
    chosen = only(root, 1, "vectors/"), only(root, 1, "passages/")
    paths = [damage(root, digest, "flipped") for digest in chosen]
    damage(mirror, chosen[0], "flipped")
    (mirror / STORE_FILE).unlink()
    damage(other, chosen[1], "cut")
    done = repair(root, mirror, other)
    assert {one.name: one.source for one in done.findings} == {
        blob_path(chosen[0]): str(other),
        blob_path(chosen[1]): str(mirror),
    }
    assert ok(root)
    damage(root, chosen[0], "flipped")
    damage(other, chosen[0], "missing")
    assert [one.outcome for one in repair(root, mirror, other).findings] == ["lost"]
    assert [path.exists() for path in paths] == [False, True]


def test_without_a_manifest_every_blob_is_read(versions: Versions, root: Path) -> None:
    damage(root, versions.manifests[1], "flipped")
    path = damage(root, only(versions.root, 2, "vectors/"), "flipped")
    done = repair(root)
    assert {one.outcome for one in done.findings} == {"rebuild"}
    assert not path.exists()
    build(versions.settings(root))
    assert ok(root)


def test_one_version_alone_is_read_and_repaired(root: Path) -> None:
    first, second = damage(root, only(root, 1, "vectors/"), "cut"), damage(root, only(root, 2, "vectors/"), "cut")
    done = repair(root, version="prod")
    assert done.versions == (1,)
    assert [one.outcome for one in done.findings] == ["lost"]
    assert not first.exists()
    assert second.exists()
    assert [one.outcome for one in repair(root, version="2").findings] == ["rebuild"]
    with pytest.raises(SnapshotNotFound):
        repair(root, version="9")


def test_a_dry_run_changes_nothing_and_says_what_would_be_done(root: Path, mirror: Path) -> None:
    lost, restored, made = only(root, 1, "vectors/"), only(root, 1, "passages/"), only(root, 2, "vectors/")
    for digest in (lost, restored, made):
        damage(root, digest, "flipped")
    for digest in (lost, made):
        damage(mirror, digest, "missing")
    before = tree(root), tree(mirror)
    done = repair(root, mirror, dry_run=True)
    assert {one.name: one.outcome for one in done.findings} == {
        blob_path(lost): "lost",
        blob_path(restored): "restored",
        blob_path(made): "rebuild",
    }
    assert not done.whole
    assert (tree(root), tree(mirror)) == before
    assert repair(root, mirror).findings == done.findings


def test_a_blob_that_cannot_be_read_is_no_damaged_blob(
    root: Path, mirror: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = root / blob_path(only(root, 2, "vectors/"))
    opened = os.open

    def refuse(file: Any, *arguments: Any, **options: Any) -> int:
        if file == path:
            raise PermissionError(13, "Permission denied", str(file))
        return opened(file, *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(os, "open", refuse)
        done = repair(root)
    assert [(one.damage, one.outcome) for one in done.findings] == [("unreadable", "unreadable")]
    assert not done.whole
    assert path.exists()
    assert ok(root)


def test_a_build_at_work_is_not_disturbed(root: Path) -> None:
    path = damage(root, only(root, 2, "vectors/"), "flipped")
    with acquire(open_folder(root), "a-build"):
        assert main(["repair", "--store", str(root)]) == 5
        assert path.exists()
        assert main(["repair", "--store", str(root), "--dry-run"]) == 7
    assert main(["repair", "--store", str(root)]) == 7
    assert not path.exists()


def repaired(root: str, mirror: str) -> None:
    repair(Path(root), Path(mirror))


@pytest.mark.slow
def test_a_repair_that_dies_is_finished_by_the_next(root: Path, mirror: Path, quick: Path) -> None:
    restored, record = damage(root, only(root, 1, "vectors/"), "flipped"), root / ref_name("main", 1)
    removed = damage(root, only(root, 2, "vectors/"), "flipped")
    (mirror / removed.relative_to(root)).unlink()
    change(record, lambda _: b"{}")
    whole = {path.relative_to(root) for path in root.rglob("*") if path.is_file()} - {removed.relative_to(root)}
    with Forks() as forks:
        copy = Path(shutil.copytree(root, quick / "0"))
        total = len(forks.call("tests.flows.test_repair:repaired", str(copy), str(mirror)).crossed)
        for at in range(1, total + 1, total // 10):
            copy = Path(shutil.copytree(root, quick / str(at)))
            ended = forks.call("tests.flows.test_repair:repaired", str(copy), str(mirror), at=at)
            assert ended.code == -signal.SIGKILL
            assert all((copy / name).is_file() for name in whole)
            repair(copy, mirror)
            assert [one.outcome for one in repair(copy, mirror).findings] == ["rebuild"]
            for path in (restored, record):
                name = path.relative_to(root)
                assert (copy / name).read_bytes() == (mirror / name).read_bytes()
            assert list((copy / "tmp").iterdir()) == []
            shutil.rmtree(copy)


def test_the_command_tells_scripts_and_people(root: Path, mirror: Path, capsys: pytest.CaptureFixture[str]) -> None:
    digest = only(root, 1, "vectors/")
    damage(root, digest, "flipped")
    assert main(["repair", "--store", str(root), "--json"]) == 7
    printed = capsys.readouterr()
    assert re.match(r"verify: \d+ blobs, 1 damaged or missing in ", printed.err)
    told = json.loads(printed.out)
    assert (told["whole"], told["versions"], told["dry_run"]) == (False, [1, 2], False)
    (finding,) = told["findings"]
    assert finding == {
        "name": blob_path(digest),
        "what": finding["what"],
        "versions": [1],
        "damage": "damaged",
        "outcome": "lost",
        "from": None,
    }
    assert finding["what"].startswith("vectors/")
    assert main(["repair", "--store", str(root)]) == 7
    assert f"{blob_path(digest)}, is missing: only a copy can restore it" in capsys.readouterr().out
    assert main(["repair", "1", "--store", str(root), "--from", str(mirror)]) == 0
    assert f"is missing: restored from {mirror}" in capsys.readouterr().out
    assert main(["repair", "--store", str(root)]) == 0
    assert ": whole" in capsys.readouterr().out
    last = runs.list_runs(open_folder(root))[-1]
    assert (last.start.command, last.state) == ("repair", "done")
    assert last.end is not None
    assert last.end.report == {"repair": {"restored": 1}}


def test_another_folder_is_no_copy(root: Path, quick: Path) -> None:
    with pytest.raises(BadInput, match="neither a store nor an exported snapshot"):
        open_copy(quick)
    with pytest.raises(BadInput):
        open_copy(quick / "none")


# In a bucket


@pytest.fixture(scope="module")
def service() -> Iterator[str]:
    with s3_service() as service:
        yield service


@pytest.fixture
def bucket(service: str, root: Path, quick: Path, monkeypatch: pytest.MonkeyPatch) -> Bucket:
    """The store with two versions in a bucket, on a machine whose cache is empty."""
    monkeypatch.setenv("INDEXMILL_CACHE", str(quick / "cache"))
    bucket = Bucket(f"{bucket_of(service)}/index")
    for path in root.rglob("*"):
        if path.is_file() and path.relative_to(root).parts[0] not in ("tmp", ".reserve"):
            bucket.put(path.relative_to(root).as_posix(), path.read_bytes())
    return bucket


@pytest.mark.slow
def test_blobs_and_records_in_a_bucket_are_restored_from_copies_and_by_a_build(
    versions: Versions, bucket: Bucket, root: Path
) -> None:
    restored, made, lost = (
        only(root, number, name) for number, name in ((1, "passages/"), (2, "vectors/"), (1, "bm25"))
    )
    whole = {digest: (root / blob_path(digest)).read_bytes() for digest in (restored, made, lost)}
    for digest, data in whole.items():
        bucket.put(blob_path(digest), data[:-1] + bytes([data[-1] ^ 1]))
    records = {name: bucket.read(name) for name in (STORE_FILE, ref_name("main", 1))}
    for name in records:
        bucket.put(name, b"{")
    for digest in (made, lost):
        damage(root, digest, "missing")
    dry = repair(bucket.url, root, dry_run=True)
    assert [(one.name, one.outcome, one.source) for one in dry.findings] == [(STORE_FILE, "restored", str(root))]
    done = repair(bucket.url, root)
    assert {one.name: one.outcome for one in done.findings} == {
        STORE_FILE: "restored",
        ref_name("main", 1): "restored",
        blob_path(restored): "restored",
        blob_path(made): "rebuild",
        blob_path(lost): "lost",
    }
    assert {name: bucket.read(name) for name in records} == records
    assert bucket.read(blob_path(restored)) == whole[restored]
    assert not any(bucket.stat(blob_path(digest)) for digest in (made, lost))
    outcome = build({**versions.settings(root), "store": bucket.url})
    assert (outcome.published, outcome.manifest) == (False, versions.manifests[1])
    assert bucket.read(blob_path(made)) == whole[made]
    bucket.put(f"copy/{blob_path(lost)}", whole[lost])  # a bucket that is a copy, too
    bucket.put(f"copy/{ref_name('main', 1)}", records[ref_name("main", 1)])
    done = repair(bucket.url, f"{bucket.url}/copy")
    assert [(one.outcome, one.source) for one in done.findings] == [("restored", f"{bucket.url}/copy")]
    assert repair(bucket.url).findings == ()


@pytest.mark.slow
def test_the_cache_restores_what_a_bucket_has_lost(bucket: Bucket, root: Path, quick: Path) -> None:
    digest = only(root, 1, "vectors/")
    assert repair(bucket.url).findings == ()  # fills the cache
    whole = bucket.read(blob_path(digest))
    bucket.put(blob_path(digest), b"other")
    assert main(["repair", "--store", bucket.url]) == 0
    assert bucket.read(blob_path(digest)) == whole
    bucket.delete(blob_path(digest))
    done = repair(bucket.url)
    assert [(one.outcome, one.source) for one in done.findings] == [("restored", f"the cache {quick / 'cache'}")]
    assert all(verify(StoreReader(bucket.url), version).ok for version in (1, 2))


@pytest.mark.slow
def test_a_bucket_without_versions_is_no_copy(bucket: Bucket) -> None:
    with pytest.raises(BadInput, match="neither a store nor an exported snapshot"):
        open_copy(f"{bucket.url}/elsewhere")


# Records


@pytest.mark.parametrize(
    ("name", "how"),
    [
        *((name, "garbled") for name in (ref_name("main", 1), ref_name("main", 2), STORE_FILE)),
        *((name, "garbled") for name in (alias_name("prod", 1), export_name(1))),
        *((name, "missing") for name in (ref_name("main", 1), STORE_FILE)),  # of others nothing tells that they were
    ],
)
def test_a_damaged_record_comes_back_from_a_copy_of_the_store(root: Path, mirror: Path, name: str, how: str) -> None:
    path = root / name
    if how == "missing":
        path.unlink()
    else:
        change(path, lambda data: b"{" + data[:20])
    before = tree(root)
    assert [one.outcome for one in repair(root, mirror, dry_run=True).findings] == ["restored"]
    assert tree(root) == before
    done = repair(root, mirror)
    assert [(one.name, one.outcome, one.source) for one in done.findings] == [(name, "restored", str(mirror))]
    assert path.read_bytes() == (mirror / name).read_bytes()
    assert ok(root)
    assert repair(root).whole
    (run,) = (run for run in runs.list_runs(open_folder(root)) if run.start.command == "repair")
    assert run.end is not None
    assert run.end.report == {"repair": {"restored": 1}}


def test_without_a_copy_a_damaged_record_is_named(root: Path, versions: Versions) -> None:
    change(root / ref_name("main", 1), lambda _: b"{}")
    done = repair(root)
    assert [(one.name, one.outcome, one.damage) for one in done.findings] == [
        (ref_name("main", 1), "lost", "damaged"),
    ]
    change(root / ref_name("main", 2), lambda _: b"{}")
    with pytest.raises(CorruptBlob, match=ref_name("main", 2)):
        repair(root)


@pytest.mark.slow
def test_a_record_of_another_store_or_of_one_that_forgot_less_is_not_taken(
    root: Path, mirror: Path, versions: Versions, quick: Path
) -> None:
    twin = quick / "twin"  # the same corpus, so the same manifests
    build(settings(twin, versions.corpus))
    build(settings(twin, versions.root.parent / "first.jsonl"))
    change(root / ref_name("main", 1), lambda _: b"{}")
    assert [one.outcome for one in repair(root, twin).findings] == ["lost"]
    tombstone = root / tombstone_name("0" * 64)
    tombstone.parent.mkdir()
    tombstone.write_bytes(b"{}")
    assert [one.outcome for one in repair(root, mirror).findings] == ["lost"]
    tombstone.unlink()
    assert [one.outcome for one in repair(root, twin, mirror).findings] == ["restored"]


def test_a_copy_that_went_its_own_way_gives_no_record(root: Path, mirror: Path, versions: Versions) -> None:
    for store, version in ((mirror, 1), (root, 2)):
        assert build(settings(store, versions.root.parent / "first.jsonl")).version == 3
        promote(open_folder(store), version, "test")
    change(root / alias_name("test", 1), lambda _: b"{}")
    assert [one.outcome for one in repair(root, mirror).findings] == ["lost"]
    change(root / ref_name("main", 3), lambda _: b"{}")
    with pytest.raises(CorruptBlob, match=ref_name("main", 3)):
        repair(root, mirror)


def test_what_makes_a_folder_a_store_is_not_taken_from_any_store(root: Path, quick: Path) -> None:
    other = init_folder(quick / "other")
    other.put_blob(b"something")
    change(root / STORE_FILE, lambda _: b"")
    with pytest.raises(CorruptBlob, match=rf"{STORE_FILE} is damaged.*`indexmill repair --from COPY` restores it"):
        repair(root, other.root)
