"""What the processes of a run see of the environment."""

from __future__ import annotations

import time
from pathlib import Path

import pyarrow as pa
import pytest

from schemas.config import LlmSettings
from schemas.sources import SqlSettings, TableSettings
from schemas.tables import DOCUMENTS
from storage.folder import FolderStore
from storage.table_blobs import put_table
from tasks.core.isolate import Failing
from tasks.core.process_environment import reader_environment, source_environment
from tasks.stages.ingest.scan_process import ScanProcess
from tests.tasks.making import failing
from tests.tasks.telling import NAMES

SECRETS = ("LLM_CRED", "PGPASSWORD", "DATABASE_URL", "OPENAI_API_KEY", "PYTHON_API_KEY", "PREFECT_API_AUTH_STRING")
NEEDED = {"LANG": "C.UTF-8", "LC_ALL": "C.UTF-8", "XDG_CACHE_HOME": "/nowhere", "TZ": "UTC", "PYTHONUNBUFFERED": "1"}
NEEDED |= {"TESSDATA_PREFIX": "/nowhere"}


def test_a_process_that_reads_is_given_no_variable_but_those_it_needs(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in SECRETS:
        monkeypatch.setenv(name, "canary")
    for name, value in NEEDED.items():
        monkeypatch.setenv(name, value)
    process = ScanProcess()
    try:
        started = _environment_of(process.pid)
    finally:
        process.end()
    assert "canary" not in " ".join(started)
    assert set(started) >= {f"{name}={value}" for name, value in NEEDED.items()}
    assert NEEDED.items() <= reader_environment().items()


def test_a_process_that_reads_records_is_also_given_what_reaches_their_place(monkeypatch: pytest.MonkeyPatch) -> None:
    of_all = {"https_proxy": "http://proxy:1", "SSL_CERT_FILE": "/ca.pem"}
    of_postgres = {"PGPASSWORD": "canary", "WIKI_WORD": "canary"}
    of_s3, of_azure = {"AWS_SECRET_ACCESS_KEY": "canary"}, {"AZURE_STORAGE_KEY": "canary"}
    others = {"OPENAI_API_KEY": "canary", "PREFECT_API_AUTH_STRING": "canary"}
    for name, value in {**of_all, **of_postgres, **of_s3, **of_azure, **others}.items():
        monkeypatch.setenv(name, value)
    sql = SqlSettings(url="postgresql://wiki:$WIKI_WORD@host/wiki", query="SELECT 1")
    tables = (TableSettings(format="delta", url=url) for url in ("s3a://bucket/wiki", "abfss://container@host/wiki"))
    for place, mine in zip((sql, *tables), (of_postgres, of_s3, of_azure), strict=True):
        given = source_environment(place).items()
        assert given >= {**of_all, **mine}.items()
        assert {name for name, value in given if value == "canary"} == set(mine)
    assert not reader_environment().keys() & of_all.keys()


def _environment_of(pid: int) -> list[str]:
    """The variables that a process was started with; there are none to see while its program is being loaded."""
    deadline = time.monotonic() + 60
    while not (text := Path(f"/proc/{pid}/environ").read_text(encoding="utf-8").strip("\0")):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    return text.split("\0")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("stage", "backend", "given"),
    [
        ("silent", "openai", NAMES[:1]),
        ("asking", "openai", NAMES[:3]),
        ("asking", "extractive", NAMES[:1]),
    ],
)
def test_a_trial_is_given_a_key_only_where_its_stage_asks_a_language_model(
    stage: str, backend: str, given: tuple[str, ...], store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in NAMES:
        monkeypatch.setenv(name, "canary")
    row = {"document_id": "a", "title": "", "text": "text", "source": None, "metadata": "{}", "content_hash": "0" * 64}
    digest, _ = put_table(store, pa.Table.from_pylist([row], schema=DOCUMENTS))
    llm = LlmSettings.model_validate({"backend": backend, "model": "tester", "api_key_env": "LLM_CRED"})
    found = failing(f"tests.tasks.telling.{stage}", store, {"documents": digest}, (llm,))
    assert found == [Failing("a", "0" * 64, False, f"ValueError: {' '.join(given)}")]
