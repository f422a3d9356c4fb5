"""The errors that a user can meet, each with its exit code.

    IndexmillError                      1
    ├── ConfigurationError              2   settings that contradict themselves or do not exist
    ├── BadInput                        2   a corpus, question file or argument that cannot be used
    ├── ModelUnavailable                2   a model or optional package that is not installed
    ├── StoreError                      1   the store cannot be read or written
    │   ├── StoreNotWritable            2   no permission, read-only
    │   │   └── DiskFull                6   no space or quota left; the next run continues
    │   ├── NotFound                    1   a name that the store does not contain (also KeyError)
    │   ├── UnsupportedFormat           2   a format that this indexmill does not read
    │   └── CorruptBlob                 1   bytes that do not match their digest, or are missing
    ├── SnapshotNotFound                2   no such version or alias (also FileNotFoundError)
    ├── FamilyNotFound                  2   the snapshot lacks what a method needs
    ├── GateRefused                     3   too many failures, quality or size below the bound
    ├── NotTrusted                      3   a snapshot that too few trusted keys have signed
    ├── BudgetReached                   4   the budget is used up; the run can be resumed
    └── LeaseLost                       5   another run holds the lease, or committed first
        └── VersionWithdrawn            5   the published version lost a part to another run, and is withdrawn

A message names the path or key, what was found, what was expected, and what to do.
"""

from __future__ import annotations

import errno
import os
from pathlib import Path
from typing import ClassVar

from indexmill.store.free_space import free_space


class IndexmillError(Exception):
    """The base class of all errors that indexmill raises on purpose."""

    exit_code: ClassVar[int] = 1


class ConfigurationError(IndexmillError):
    """Settings that contradict themselves or do not exist."""

    exit_code = 2


class BadInput(IndexmillError):
    """A corpus, a question file or an argument that cannot be used."""

    exit_code = 2


class ModelUnavailable(IndexmillError):
    """A model, or the optional package that runs it, is not installed."""

    exit_code = 2


class StoreError(IndexmillError):
    """The store cannot be read or written."""


class StoreNotWritable(StoreError):
    """The store's folder or a file in it is read-only, or permission to write it is missing."""

    exit_code = 2


class DiskFull(StoreNotWritable):
    """A disk or a quota is full. Nothing that was finished is lost, and the next run continues from there."""

    exit_code = 6

    @classmethod
    def of(cls, error: BaseException, where: object, what_to_do: str = "") -> DiskFull | None:
        """Convert an error of a full disk or quota; None for any other error.

        where: the file or folder that was written; for a path, the message states the free space there. what_to_do:
        replaces the advice to free space and run again.
        """
        if not isinstance(error, OSError) or error.errno not in (errno.ENOSPC, errno.EDQUOT):
            return None
        do = what_to_do or "free some space there and run again: nothing is lost, and the next run continues"
        is_path = isinstance(where, os.PathLike) or str(where).startswith(os.sep)
        free = free_space(Path(str(where))) if is_path else ""
        return cls(f"{where} cannot be written: {error.strerror}; {do}{free and f' ({free})'}")

    @classmethod
    def of_any(cls, error: BaseException, *folders: Path) -> DiskFull | None:
        """Convert an error as ``of`` does, even if it names no file. folders: where the failed write may have been."""
        named = getattr(error, "filename", None)
        if named is not None:
            return cls.of(error, named)
        places = ", ".join(dict.fromkeys(filter(None, map(free_space, folders))))
        advice = f"free some space there and run again: nothing is lost, and the next run continues ({places})"
        return cls.of(error, f"a file in {' or '.join(map(str, folders))}", advice)


class NotFound(StoreError, KeyError):
    """The store does not contain this name."""

    def __str__(self) -> str:  # KeyError would print the message's repr
        return str(self.args[0]) if self.args else ""


class UnsupportedFormat(StoreError):
    """A store, manifest or record of a format that this indexmill does not read."""

    exit_code = 2


class CorruptBlob(StoreError):
    """Bytes that are missing or do not match the digest that names them."""


class SnapshotNotFound(IndexmillError, FileNotFoundError):
    """The store has no such version or alias, or no snapshot at all."""

    exit_code = 2


class FamilyNotFound(IndexmillError):
    """The snapshot lacks what a retrieval method needs."""

    exit_code = 2


class GateRefused(IndexmillError):
    """A gate refused to publish: too many failures, or quality or size below the bound."""

    exit_code = 3


class NotTrusted(IndexmillError):
    """Too few trusted keys have signed the snapshot, or none recently enough."""

    exit_code = 3


class BudgetReached(IndexmillError):
    """The budget is used up; the run stopped cleanly, and a later run continues."""

    exit_code = 4


class LeaseLost(IndexmillError):
    """Another run holds the lease, or committed a version first."""

    exit_code = 5


class VersionWithdrawn(LeaseLost):
    """Another run removed, or may be removing, a part that the version just published needs."""
