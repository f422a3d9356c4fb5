from __future__ import annotations

import os
import resource
import signal
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from indexmill.errors import CorruptBlob
from indexmill.store.canonical import canonical_json
from indexmill.store.packs import DTYPES, Pack, open_pack, write_pack
from tests.deep import examples

VECTORS = np.arange(12, dtype="<f4").reshape(3, 4)
PACK = {"vectors": VECTORS, "indptr": np.array([0, 2, 3], "<i8"), "none": np.empty((0, 384), "<f4")}

names = st.from_regex(r"[a-z_][a-z0-9_]{0,8}", fullmatch=True)
arrays = st.sampled_from(sorted(DTYPES)).flatmap(
    lambda dtype: hnp.arrays(dtype, hnp.array_shapes(min_dims=0, max_dims=3, min_side=0, max_side=5))
)


def raw(header: Any, data: bytes = b"", *, magic: bytes = b"IMPACK1\n", length: int | None = None) -> bytes:
    text = header if isinstance(header, bytes) else canonical_json(header)
    start = struct.pack("<8sQ", magic, len(text) if length is None else length) + text
    return start + b"\0" * (-len(start) % 64) + data


def entry(**changes: Any) -> dict[str, Any]:
    return {"name": "a", "dtype": "<f4", "shape": [4], "offset": 0} | changes


def opened(tmp_path: Path, data: bytes) -> Pack:
    path = tmp_path / "pack"
    path.unlink(missing_ok=True)
    path.write_bytes(data)
    return open_pack(path)


@examples(4, deep=60)
@given(packed=st.dictionaries(names, arrays, max_size=5))
def test_any_arrays_come_back_as_they_were(tmp_path_factory: pytest.TempPathFactory, packed: dict[str, Any]) -> None:
    folder = tmp_path_factory.mktemp("packs")
    data = write_pack(None, packed)
    assert write_pack(folder / "pack", dict(reversed(packed.items()))) == len(data)
    assert (folder / "pack").read_bytes() == data
    pack = open_pack(folder / "pack")
    assert sorted(pack) == sorted(packed)
    for name, array in packed.items():
        assert pack[name].dtype == array.dtype
        assert pack[name].shape == array.shape
        assert pack[name].tobytes() == array.tobytes()


def test_the_bytes_of_a_small_pack(tmp_path: Path) -> None:
    data = write_pack(None, {"b": np.array([1, 2], "<u2"), "a": np.array(True)})
    header = (
        b'{"arrays":[{"dtype":"|b1","name":"a","offset":0,"shape":[]},'
        b'{"dtype":"<u2","name":"b","offset":64,"shape":[2]}]}\n'
    )
    assert data[:8] == b"IMPACK1\n"
    assert data[8:16] == len(header).to_bytes(8, "little")
    assert data[16 : 16 + len(header)] == header
    assert data[16 + len(header) :].lstrip(b"\0") == b"\1" + b"\0" * 63 + b"\1\0\2\0"
    assert len(data) % 64 == 4
    assert opened(tmp_path, data)["a"] == np.array(True)


def test_arrays_are_mapped_aligned_and_read_only(tmp_path: Path) -> None:
    pack = opened(tmp_path, write_pack(None, PACK))
    assert pack.schema == {
        "indptr": {"dtype": "<i8", "shape": [3]},
        "none": {"dtype": "<f4", "shape": [0, 384]},
        "vectors": {"dtype": "<f4", "shape": [3, 4]},
    }
    for name, array in pack.items():
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 1
        if array.size:
            assert array.ctypes.data % 64 == 0
            assert not array.flags.owndata, name
    vectors = pack["vectors"]
    del pack
    assert vectors[2, 3] == 11  # the map lives as long as the array


def test_an_open_pack_holds_no_open_file(tmp_path: Path) -> None:
    paths = [tmp_path / f"pack-{number}" for number in range(50)]
    for number, path in enumerate(paths):
        write_pack(path, {"numbers": np.full(9, number)})
    before = len(os.listdir("/dev/fd"))  # noqa: PTH208 - the names alone
    packs = [open_pack(path) for path in paths]
    assert len(os.listdir("/dev/fd")) == before  # noqa: PTH208
    for path in paths:
        path.unlink()
    assert [int(pack["numbers"][-1]) for pack in packs] == list(range(50))


def test_other_layouts_in_memory_give_the_same_bytes() -> None:
    expected = write_pack(None, {"v": VECTORS})
    wide = np.zeros((6, 4), "<f4")
    wide[::2] = VECTORS
    for same in (np.asfortranarray(VECTORS), VECTORS.astype(">f4"), wide[::2]):
        assert write_pack(None, {"v": same}) == expected


@pytest.mark.parametrize(
    "array", [np.array(["a"]), np.array([None]), np.array([1j]), np.array([b"x"]), np.zeros(1, "M8[s]")]
)
def test_what_is_no_number_is_refused(array: Any, tmp_path: Path) -> None:
    with pytest.raises(TypeError, match="cannot contain"):
        write_pack(tmp_path / "pack", {"a": array})
    assert not (tmp_path / "pack").exists()


def test_more_dimensions_than_every_numpy_has_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="shape"):
        write_pack(tmp_path / "pack", {"v": np.zeros((1,) * 40)})
    assert list(tmp_path.iterdir()) == []


def test_a_file_that_cannot_be_written_to_its_end_is_removed(tmp_path: Path) -> None:
    limit = resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    try:
        resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limit[1]))
        with pytest.raises(OSError, match="too large"):
            write_pack(tmp_path / "pack", {"v": np.zeros(10_000)})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, limit)
        signal.signal(signal.SIGXFSZ, handler)
    assert list(tmp_path.iterdir()) == []


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    (tmp_path / "pack").write_bytes(b"mine")
    with pytest.raises(FileExistsError):
        write_pack(tmp_path / "pack", {"v": VECTORS})
    assert (tmp_path / "pack").read_bytes() == b"mine"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"IMPACK1\n",
        b"\x80\x04\x95pickle",
        raw({"arrays": []}, magic=b"IMPACK2\n"),
        raw({"arrays": []}, length=1 << 63),
        raw({"arrays": []}, length=0),
        raw({"arrays": []}, b"\0"),
        raw({}),
        raw([]),
        raw(b"\xff\xfe"),
        raw(b"[" * 100_000),
        raw({"arrays": None}),
        raw({"arrays": [[]]}),
        raw({"arrays": [entry()]}),
        raw({"arrays": [entry()]}, b"\0" * 15),
        raw({"arrays": [entry()]}, b"\0" * 17),
        raw({"arrays": [entry(shape=[-1])]}, b"\0" * 16),
        raw({"arrays": [entry(shape=[-2, -2])]}, b"\0" * 16),
        raw({"arrays": [entry(shape=[1 << 62])]}, b"\0" * 16),
        raw({"arrays": [entry(shape=[1 << 62, 0, 1 << 62])]}),
        raw({"arrays": [entry(shape=[True])]}, b"\0" * 4),
        raw({"arrays": [entry(shape=[4.0])]}, b"\0" * 16),
        raw({"arrays": [entry(shape="4")]}, b"\0" * 16),
        raw({"arrays": [entry(shape=[1] * 99)]}, b"\0" * 4),
        raw({"arrays": [entry(dtype="|O")]}, b"\0" * 32),
        raw({"arrays": [entry(dtype="object")]}, b"\0" * 32),
        raw({"arrays": [entry(dtype=">f4")]}, b"\0" * 16),
        raw({"arrays": [entry(dtype="f4")]}, b"\0" * 16),
        raw({"arrays": [entry(dtype=["<f4"])]}, b"\0" * 16),
        raw({"arrays": [entry(offset=1 << 40)]}, b"\0" * 16),
        raw({"arrays": [entry(offset=-64)]}, b"\0" * 16),
        raw({"arrays": [entry(offset=4)]}, b"\0" * 20),
        raw({"arrays": [entry(), entry(name="b")]}, b"\0" * 16),  # overlapping
        raw({"arrays": [entry(), entry()]}, b"\0" * 80),
        raw({"arrays": [entry(name="b"), entry(offset=64)]}, b"\0" * 80),
        raw({"arrays": [entry(name="../a")]}, b"\0" * 16),
        raw({"arrays": [entry(name=1)]}, b"\0" * 16),
        raw({"arrays": [entry(more=1)]}, b"\0" * 16),
        raw({"arrays": [entry()], "more": 1}, b"\0" * 16),
        raw(b'{"arrays": []}'),
    ],
)
def test_a_hostile_file_is_refused(tmp_path: Path, data: bytes) -> None:
    with pytest.raises(CorruptBlob, match="pack"):
        opened(tmp_path, data)


@settings(max_examples=150)
@given(at=st.integers(0, 200), byte=st.integers(0, 255), cut=st.integers(0, 300))
def test_a_damaged_header_never_does_more_than_be_refused(
    tmp_path_factory: pytest.TempPathFactory, at: int, byte: int, cut: int
) -> None:
    data = bytearray(write_pack(None, PACK))
    data[at] = byte
    del data[len(data) - cut :]
    try:
        pack = opened(tmp_path_factory.mktemp("damaged"), bytes(data))
    except CorruptBlob:
        return
    for array in pack.values():
        array.sum()


def test_a_file_that_is_not_there_is_corrupt(tmp_path: Path) -> None:
    with pytest.raises(CorruptBlob, match="nowhere"):
        open_pack(tmp_path / "nowhere")
