"""Checked packs: mapped unread as long as their files are the same, and checked again otherwise."""

from __future__ import annotations

import os
import time
from hashlib import sha256
from pathlib import Path

import numpy as np
import pytest

from indexmill.errors import CorruptBlob
from indexmill.store import checked_packs
from indexmill.store.artifact_listing import Artifact
from indexmill.store.checked_packs import CheckedPacks, PackFile, describe_packs
from indexmill.store.packs import Pack, open_pack, write_pack

Packs = list[tuple[Artifact, Path]]


@pytest.fixture
def packs(tmp_path: Path) -> Packs:
    found = []
    for number in range(3):
        path = tmp_path / f"pack-{number}"
        write_pack(path, {"rows": np.full((number, 4), number, np.float32), "keys": np.arange(number)})
        made = Artifact(
            name=f"vectors/{number}",
            kind="arrays",
            digest="0" * 64,
            bytes=path.stat().st_size,
            schema=open_pack(path).schema,  # type: ignore[arg-type]
        )
        found.append((made, path))
    return found


def files(packs: Packs) -> list[PackFile]:
    return [PackFile(artifact, path, sha256(artifact.name.encode()).digest()) for artifact, path in packs]


def checked(packs: Packs) -> CheckedPacks:
    paths = {artifact.name: path for artifact, path in packs}

    def check(artifact: Artifact) -> Pack:
        return open_pack(paths[artifact.name])

    return CheckedPacks([artifact for artifact, _ in packs], describe_packs(files(packs), check))


def test_what_was_checked_is_mapped_as_it_was(packs: Packs) -> None:
    known = checked(packs)
    for artifact, path in packs:
        found, expected = known.open(artifact, path), open_pack(path)
        assert found is not None
        assert found.schema == expected.schema
        for name, array in expected.items():
            np.testing.assert_array_equal(found[name], array)
            assert found[name].dtype == array.dtype


@pytest.mark.parametrize("change", ["other bytes", "other file", "shorter", "gone"])
def test_another_file_has_to_be_checked(packs: Packs, change: str) -> None:
    known = checked(packs)
    artifact, path = packs[2]
    if change == "other bytes":
        path.write_bytes(path.read_bytes()[:-1] + b"x")
        os.utime(path, ns=(1, path.stat().st_mtime_ns + 1))  # clocks of files are coarse
    elif change == "other file":
        other = path.with_name("other")
        other.write_bytes(path.read_bytes())
        os.utime(other, ns=(1, path.stat().st_mtime_ns))
        other.replace(path)
    elif change == "shorter":
        path.write_bytes(path.read_bytes()[:-1])
    else:
        path.unlink()
    assert known.open(artifact, path) is None
    assert known.open(*packs[1]) is not None


def test_a_damaged_pack_is_left_to_who_uses_it(packs: Packs) -> None:
    packs[1][1].write_bytes(b"no pack")
    known = checked(packs)
    assert [known.open(*pack) is not None for pack in packs] == [True, False, True]


def test_a_pack_that_nobody_described_has_to_be_checked(packs: Packs) -> None:
    known = checked(packs[:2])
    assert known.open(*packs[2]) is None
    assert known.open(packs[0][0], None) is None


def test_descriptions_of_other_packs_are_refused(packs: Packs) -> None:
    described = describe_packs(files(packs[:2]), lambda _: open_pack(packs[0][1]))
    with pytest.raises(ValueError, match="zip"):
        CheckedPacks([artifact for artifact, _ in packs], described)


def test_a_file_that_shrinks_after_its_check_has_to_be_checked(packs: Packs, monkeypatch: pytest.MonkeyPatch) -> None:
    known = checked(packs)
    artifact, path = packs[2]
    status = path.stat()
    path.write_bytes(path.read_bytes()[:-1])
    monkeypatch.setattr(Path, "stat", lambda *_, **__: status)
    assert known.open(artifact, path) is None


@pytest.mark.parametrize("ours", [True, False])
def test_who_can_set_back_the_time_of_a_file_is_not_trusted(
    packs: Packs, ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(checked_packs, "is_own", lambda _: ours)
    known = checked(packs)
    artifact, path = packs[2]
    time.sleep(0.02)  # clocks of files are coarse
    os.utime(path, ns=(1, path.stat().st_mtime_ns))
    assert (known.open(artifact, path) is not None) == ours


def test_a_file_that_changes_while_it_is_checked_has_to_be_checked(packs: Packs) -> None:
    def check(artifact: Artifact) -> Pack:
        path = {one.name: path for one, path in packs}[artifact.name]
        found = open_pack(path)
        os.utime(path, ns=(1, 1))
        return found

    known = CheckedPacks([artifact for artifact, _ in packs], describe_packs(files(packs), check))
    assert [known.open(*pack) for pack in packs] == [None] * 3


def test_a_file_that_goes_or_is_older_than_time_is_no_error(packs: Packs) -> None:
    os.utime(packs[0][1], ns=(1, -5_000_000_000))
    packs[1][1].unlink()
    known = checked(packs)
    assert [known.open(*pack) is not None for pack in packs] == [True, False, True]


def test_what_another_snapshot_has_of_a_file_is_not_checked_again(packs: Packs) -> None:
    paths, asked = {artifact.name: path for artifact, path in packs}, []

    def check(artifact: Artifact) -> Pack:
        asked.append(artifact.name)
        return open_pack(paths[artifact.name])

    before = describe_packs(files(packs[:2]), check)
    asked.clear()
    packs[0][1].write_bytes(packs[0][1].read_bytes())  # another time
    os.utime(packs[0][1], ns=(1, packs[0][1].stat().st_mtime_ns + 1))
    now = describe_packs(files(packs), check, [before])
    assert asked == ["vectors/0", "vectors/2"]
    for name, array in describe_packs(files(packs), check).items():
        np.testing.assert_array_equal(now[name], array)


def test_a_file_of_another_key_is_checked(packs: Packs) -> None:
    before = describe_packs(files(packs), lambda artifact: open_pack(dict(named(packs))[artifact.name]))
    others = [PackFile(one.artifact, one.path, sha256(one.key).digest()) for one in files(packs)]
    asked: list[str] = []

    def refuse(artifact: Artifact) -> Pack:
        asked.append(artifact.name)
        raise CorruptBlob("other lengths")

    assert not describe_packs(others, refuse, [before])["files"].any()
    assert len(asked) == 3


def named(packs: Packs) -> list[tuple[str, Path]]:
    return [(artifact.name, path) for artifact, path in packs]
