"""Keys and certificates of a Dask cluster."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("cryptography")

from cryptography.hazmat.primitives.serialization import load_pem_private_key
from cryptography.x509 import load_pem_x509_certificate

from flows.credentials import write_credentials
from tests.paths import ROOT


def run(*arguments: object) -> subprocess.CompletedProcess[str]:
    """What the module says as a program."""
    words = [sys.executable, "-m", "indexmill_pipeline", "flows.credentials", *map(str, arguments)]
    return subprocess.run(words, cwd=ROOT, capture_output=True, text=True, timeout=120)


def belong_together(folder: Path) -> bool:
    key = load_pem_private_key((folder / "key.pem").read_bytes(), None)
    certificate = load_pem_x509_certificate((folder / "certificate.pem").read_bytes())
    return key.public_key() == certificate.public_key()


@pytest.mark.parametrize("last", ["key.new", "key.pem", "certificate.new"])
def test_credentials_are_whole_after_a_process_that_was_killed(
    tmp_path: Path, last: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Killed(BaseException): ...

    def replace(path: Path, target: Path) -> None:
        if path.name == last:
            raise Killed
        path.rename(target)
        if target.name == last:
            raise Killed

    with monkeypatch.context() as patched:
        patched.setattr(Path, "replace", replace)
        with pytest.raises(Killed):
            write_credentials(tmp_path)
    assert (tmp_path / last).exists()
    assert not (tmp_path / "certificate.pem").exists()
    write_credentials(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"certificate.pem", "key.pem"}
    assert belong_together(tmp_path)


def test_credentials_that_are_there_are_not_replaced(tmp_path: Path) -> None:
    write_credentials(tmp_path)
    before = (tmp_path / "key.pem").read_bytes()
    with pytest.raises(FileExistsError, match=r"certificate\.pem already exists; .*remove it"):
        write_credentials(tmp_path)
    assert run(tmp_path).returncode == 0
    assert (tmp_path / "key.pem").read_bytes() == before


@pytest.mark.slow
def test_the_program_says_how_it_is_used(tmp_path: Path) -> None:
    told = run()
    assert told.returncode == 2
    assert "usage: python -m indexmill_pipeline flows.credentials [-h] FOLDER" in told.stderr
    told = run(tmp_path / "missing")
    assert told.returncode == 2
    assert told.stderr == (
        "python -m indexmill_pipeline flows.credentials: "
        f"cannot write credentials to {tmp_path}/missing: No such file or directory\n"
    )
