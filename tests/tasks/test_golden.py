"""A stage whose output changes must change its code version, or old parts would pass for new ones.

`golden.json` holds, per stage, its version and a digest of what it makes of the sample corpus with the deterministic
encoder: of rows and arrays, not of files, so that another version of a library does not matter. After a change that is
meant, raise the stage's version and run with INDEXMILL_WRITE_GOLDEN=1.
"""

from __future__ import annotations

import hashlib
import importlib
import json
import os
from pathlib import Path

import pytest

from flows.run import build_inline
from indexmill.canonical import canonical_json
from indexmill.packs import open_pack
from schemas.config import Configuration
from storage import lineage, refs
from storage.folder import open_store
from storage.tables import read_table
from tasks.build import STAGES
from tasks.report import Silent

GOLDEN = Path(__file__).with_name("golden.json")
SAMPLE = Path(__file__).resolve().parent.parent.parent / "sample" / "corpus.jsonl"
MODULES = {"ingest": "tasks.ingest.part"}


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, object]]:
    """Version and digest of every stage that a build of the sample runs."""
    path = tmp_path_factory.mktemp("golden") / "store"
    settings = {"store": path, "corpus": {"paths": [str(SAMPLE)]}, "embed": {"model": "hash"}}
    outcome = build_inline(Configuration.model_validate(settings), progress=Silent())
    store = open_store(path)
    manifest = refs.read(store, outcome.version).manifest
    found: dict[str, dict[str, object]] = {}
    digests: dict[str, list[str]] = {}
    for entry in lineage.read(store, json.loads(store.get_blob(manifest))["lineage"]).entries:
        for output, digest in sorted(entry.outputs.items()):
            digests.setdefault(entry.stage, []).append(f"{entry.shard} {output} {_content(store.open_local(digest))}")
    for stage, lines in sorted(digests.items()):
        version = importlib.import_module(MODULES.get(stage, f"tasks.{stage}")).STAGE.version
        found[stage] = {"version": version, "digest": hashlib.sha256("\n".join(lines).encode()).hexdigest()}
    return found


def _content(path: Path) -> str:
    """A digest of a blob's rows, arrays or bytes."""
    data = path.read_bytes()
    if data.startswith(b"PAR1"):
        rows = read_table(open_store(path.parents[3]), path.name).to_pylist()
        return hashlib.sha256(canonical_json(rows)).hexdigest()
    if data.startswith(b"IMPACK1\n"):
        hashed = hashlib.sha256()
        for name, array in sorted(open_pack(path).items()):
            hashed.update(f"{name} {array.dtype.str} {array.shape}".encode() + array.tobytes())
        return hashed.hexdigest()
    return hashlib.sha256(data).hexdigest()


def test_no_stage_changed_its_output_under_the_same_version(made: dict[str, dict[str, object]]) -> None:
    if os.environ.get("INDEXMILL_WRITE_GOLDEN"):
        GOLDEN.write_text(json.dumps(made, indent=2, sort_keys=True) + "\n")
    golden = json.loads(GOLDEN.read_text())
    changed = {stage for stage in made if made[stage] != golden.get(stage)}
    assert not changed, f"{sorted(changed)}: raise the version if the change is meant, then write golden.json anew"


def test_every_stage_of_a_build_is_held_to_its_digest(made: dict[str, dict[str, object]]) -> None:
    assert {*made, "encoder"} == set(STAGES)  # the deterministic encoder is not converted
