"""``indexmill sign``: sign a version."""

from __future__ import annotations

import os
from pathlib import Path

import click

from flows.command.shared import FILE, print_result, store_of, version_number
from flows.sign import read_key, sign
from indexmill.command.options import Options, common
from indexmill.errors import BadInput
from indexmill.store.signatures import new_key, public_key


@click.command("sign")
@click.argument("version", metavar="[VERSION]", required=False)
@click.option("--key", type=FILE, metavar="FILE", help="The private key, as --new-key wrote it.")
@click.option("--new-key", type=FILE, metavar="FILE", help="Write a new private key, and print its public key.")
@common
def command(options: Options, version: str | None, key: Path | None, new_key: Path | None) -> None:
    """Sign VERSION (a number, an alias or `newest`, the default) with a private key.

    Make a key once with `indexmill sign --new-key FILE`, keep the file where only the publisher can read it, and give
    the printed public key to the readers of the index. They name it in a JSON file,

        {"keys": {"release": "indexmill-ed25519:..."}, "threshold": 1, "least_version": 7, "most_days": 40}

    and open only versions signed with it: `--trust FILE` of query, answer, evaluate, show, verify, copy and promote,
    `trust=` of `indexmill.open` and `indexmill.follow`. least_version and most_days keep an old version from being
    served as a new one. A version may have any number of signatures; to change keys, sign with both until all readers
    have the new key.

    A build signs the version it publishes if `run.signing_key_file` names a key.

    A signature vouches for the SHA-256 of the manifest, so for every byte of the version. It travels with `copy` and
    `export`.
    """
    if (key is None) == (new_key is None):
        raise click.UsageError("give a private key, as in `indexmill sign 7 --key FILE`, or --new-key FILE to make one")
    if new_key is not None:
        public = _write_key(new_key)
        print_result(options, {"key": public, "file": str(new_key)}, [f"wrote {new_key}; its public key is", public])
        return
    assert key is not None  # noqa: S101 - see above
    store = store_of(options)
    done = sign(store, version_number(store, version or "newest"), read_key(key))
    print_result(options, done, [f"signed version {done.version}, manifest {done.manifest}, by {done.key}"])


def _write_key(path: Path) -> str:
    """Write a new private key that only this user can read; returns the public key."""
    private = new_key()
    try:
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    except FileExistsError:
        raise BadInput(f"{path} exists and is not overwritten: choose another name") from None
    except OSError as error:
        raise BadInput(f"{path}: the key cannot be written: {error.strerror}") from error
    with os.fdopen(descriptor, "w", encoding="ascii") as file:
        file.write(f"{private}\n")
        file.flush()
        os.fsync(file.fileno())
    return public_key(private)
