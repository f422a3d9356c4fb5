"""Files are there whole, or as they were before."""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from pathlib import Path

import pytest

from indexmill.store.whole_files import write_whole


def test_a_file_has_the_pieces_in_order_and_the_usual_mode(tmp_path: Path) -> None:
    write_whole(tmp_path / "f", ["é\n", "b"])
    assert (tmp_path / "f").read_bytes() == "é\nb".encode()
    mask = os.umask(0)
    os.umask(mask)
    assert stat.S_IMODE((tmp_path / "f").stat().st_mode) == 0o666 & ~mask


def test_a_writer_that_fails_leaves_the_file_as_it_was_and_nothing_beside_it(tmp_path: Path) -> None:
    def pieces() -> Iterator[str]:
        yield "new"
        raise OSError(28, "No space left on device")

    (tmp_path / "f").write_text("old")
    with pytest.raises(OSError, match="No space"):
        write_whole(tmp_path / "f", pieces())
    assert (tmp_path / "f").read_text() == "old"
    assert [path.name for path in tmp_path.iterdir()] == ["f"]
