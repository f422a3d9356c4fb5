"""Operations in child processes that die, or meet a failing disk, at a boundary of a durable write."""

from __future__ import annotations

import os
from pathlib import Path

from flows.copy import copy_version
from flows.export import export_snapshot
from flows.rollback import roll_back
from indexmill.errors import IndexmillError
from storage import faults
from storage.folder import open_folder
from tasks.core.report import Silent


def roll_back_and_die(root: Path, version: int, at: int, mode: str) -> None:
    """Roll back; the crossing `at` fails as `storage.faults` describes."""
    faults.arm(at, mode)
    try:
        roll_back(open_folder(root), version, note="a test")
    except IndexmillError as error:
        os._exit(error.exit_code)


def copy_and_die(root: Path, version: int, target: Path, at: int, mode: str) -> None:
    """Copy into another store; the crossing `at` fails as `storage.faults` describes."""
    faults.arm(at, mode)
    try:
        copy_version(open_folder(root), version, str(target), progress=Silent())
    except IndexmillError as error:
        os._exit(error.exit_code)


def export_and_die(root: Path, version: int, folder: Path, at: int, mode: str, form: str = "snapshot") -> None:
    """Export; the crossing `at` fails as `storage.faults` describes."""
    faults.arm(at, mode)
    try:
        export_snapshot(open_folder(root), version, folder, form=form, progress=Silent())
    except IndexmillError as error:
        os._exit(error.exit_code)
