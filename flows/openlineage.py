"""OpenLineage events of a run: its inputs, the version it published, and its outcome.

Events are sent only if the OpenLineage package is configured as it documents: by ``OPENLINEAGE_URL``, variables that
begin with ``OPENLINEAGE__``, or a file ``openlineage.yml``. A slow or missing receiver costs a run seconds and a
warning. Events contain names of sources, counts and versions, but no text and no id of a document.
"""

from __future__ import annotations

import contextlib
import functools
import logging
import os
import queue
import threading
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import urlsplit

import indexmill
from indexmill.extras import install
from indexmill.models.secrets import redacted
from indexmill.store.manifest import Manifest
from schemas.config import Configuration
from schemas.sources import name_of_source
from storage.clock import Clock
from tasks.core.report import RunReport

if TYPE_CHECKING:
    from openlineage.client import OpenLineageClient
    from openlineage.client.event_v2 import InputDataset, OutputDataset

_PRODUCER = f"pkg:pypi/indexmill@{indexmill.__version__}"
_FILE = "openlineage.yml"
_PATIENCE = 8.0
"""The maximum seconds that the end of a run waits for its events to be sent."""


def is_configured(environment: Mapping[str, str] | None = None) -> bool:
    """Return True if the environment or a file names a receiver of events."""
    variables = os.environ if environment is None else environment
    if variables.get("OPENLINEAGE_DISABLED", "").strip().lower() == "true":
        return False
    if variables.get("OPENLINEAGE_URL") or any(name.startswith("OPENLINEAGE__TRANSPORT") for name in variables):
        return True
    home = os.path.expanduser("~")  # noqa: PTH111 - expanduser and isfile of os.path never raise, unlike Path's
    files = (variables.get("OPENLINEAGE_CONFIG") or _FILE, _FILE, f"{home}/.openlineage/{_FILE}")
    return any(map(os.path.isfile, files))


def uuid_of(run_id: str) -> str:
    """Return the UUID of a run, which depends only on its id."""
    return str(uuid.uuid5(uuid.NAMESPACE_URL, f"indexmill:run:{run_id}"))


def dataset_of(place: Path | str) -> tuple[str, str]:
    """Return the namespace and name of a folder, a file or a bucket's prefix, by OpenLineage's conventions."""
    if isinstance(place, Path):
        return "file", str(place.absolute())
    url = urlsplit(place)
    return f"{url.scheme}://{url.hostname or ''}", url.path.strip("/") or "/"


class RunLineage:
    """Sends the events of one run, in order, from a thread that ends with it. Never raises; warns once."""

    def __init__(
        self, command: str, configuration: Configuration, warn: Callable[[str], None], clock: Clock = time.time
    ) -> None:
        self._command, self._configuration, self._warn, self._clock = command, configuration, warn, clock
        self._run = ""
        self._events: queue.SimpleQueue[Callable[[], Any] | None] = queue.SimpleQueue()
        self._thread: threading.Thread | None = None
        self._failure = ""

    def started(self, run_id: str) -> None:
        """Report the start of the run, once it has a record."""
        if not is_configured():
            return
        if find_spec("openlineage") is None:
            self._warn(
                "OpenLineage is configured, but nothing is sent: the package openlineage-python is not installed: "
                f"{install('openlineage')}"
            )
            return
        self._run = run_id
        self._thread = threading.Thread(target=self._send, name="openlineage", daemon=True)
        self._thread.start()
        self._emit("START", {})

    def ended(
        self, outcome: str, report: RunReport, manifest: Manifest | None, version: int | None, message: str | None
    ) -> None:
        """Report the end. outcome: as in the run's record. manifest: of the published version. message: of an error."""
        if self._thread is None:
            return
        kinds = {"published": "COMPLETE", "unchanged": "COMPLETE", "interrupted": "ABORT", "superseded": "ABORT"}
        facets = {"outcome": outcome, **_counts(report)}
        published = None if manifest is None else (manifest, version)
        self._emit(kinds.get(outcome, "FAIL"), facets, report, published, message)
        self._events.put(None)
        self._thread.join(_PATIENCE)
        if self._thread.is_alive():
            self._failure = f"the receiver has not answered for {_PATIENCE:g} seconds"
        if self._failure:
            self._warn(f"OpenLineage events of this run are missing: {self._failure}")

    def _send(self) -> None:
        with _quiet_retries():
            while (make := self._events.get()) is not None:
                if self._failure:
                    continue
                try:
                    self._client().emit(make())
                except Exception as error:  # any transport may raise any error
                    self._failure = redacted(f"{type(error).__name__}: {error}")

    def _client(self) -> OpenLineageClient:
        from openlineage.client import OpenLineageClient
        from openlineage.client.event_v2 import set_producer

        set_producer(_PRODUCER)
        with _own_variables():
            return OpenLineageClient()

    def _emit(self, kind: str, *content: Any) -> None:
        """Queue an event with the current time. content: the arguments of `_event`."""
        now = datetime.fromtimestamp(self._clock(), UTC).isoformat(timespec="milliseconds")
        self._events.put(functools.partial(self._event, kind, now, *content))

    def _event(
        self,
        kind: str,
        now: str,
        counts: Mapping[str, Any],
        report: RunReport | None = None,
        published: tuple[Manifest, int | None] | None = None,
        message: str | None = None,
    ) -> Any:
        from openlineage.client.event_v2 import Job, Run, RunEvent, RunState
        from openlineage.client.facet_v2 import error_message_run, job_type_job, processing_engine_run
        from openlineage.client.generated.base import RunFacet

        run: dict[str, Any] = {
            "processing_engine": processing_engine_run.ProcessingEngineRunFacet(
                version=indexmill.__version__, name="indexmill"
            ),
            "indexmill_run": RunFacet().with_additional_properties(id=self._run, command=self._command, **counts),
        }
        if message is not None:
            run["errorMessage"] = error_message_run.ErrorMessageRunFacet(message=message, programmingLanguage="PYTHON")
        namespace, name = dataset_of(self._configuration.store)
        job = job_type_job.JobTypeJobFacet(
            processingType="BATCH", integration="INDEXMILL", jobType=self._command.upper()
        )
        return RunEvent(
            eventType=RunState(kind),
            eventTime=now,
            run=Run(runId=uuid_of(self._run), facets=run),
            job=Job(
                namespace=os.environ.get("OPENLINEAGE_NAMESPACE") or "indexmill",
                name=f"{self._command} {namespace}{':' if namespace == 'file' else '/'}{name}",
                facets={"jobType": job},
            ),
            inputs=self._inputs(report),
            outputs=[] if published is None else [_output(namespace, name, *published, report)],
            producer=_PRODUCER,
        )

    def _inputs(self, report: RunReport | None) -> list[InputDataset]:
        """Return the sources of the corpus. The row count covers all sources, so only a single source gets it."""
        from openlineage.client.event_v2 import InputDataset
        from openlineage.client.facet_v2 import input_statistics_input_dataset

        corpus = self._configuration.corpus
        sources = [] if corpus is None else [*map(redacted, corpus.paths), *map(name_of_source, corpus.sources)]
        facets: dict[str, Any] = {}
        scan = None if report is None else report.stages.get("ingest")
        if len(sources) == 1 and scan is not None and "documents" in scan.counts:
            rows = scan.counts["documents"] + scan.counts["quarantined"]
            facets["inputStatistics"] = input_statistics_input_dataset.InputStatisticsInputDatasetFacet(rowCount=rows)
        return [
            InputDataset(*dataset_of(source if "://" in source else Path(source)), inputFacets=facets)
            for source in sources
        ]


@contextlib.contextmanager
def _own_variables() -> Iterator[None]:
    """Remove the variables that the block adds to the environment.

    A client copies `OPENLINEAGE_URL` and the key into variables with longer names. If they stayed, the next run of this
    process would send to the previous receiver.
    """
    before = set(os.environ)
    try:
        yield
    finally:
        for name in set(os.environ) - before:
            if name.startswith("OPENLINEAGE__"):
                del os.environ[name]


@contextlib.contextmanager
def _quiet_retries() -> Iterator[None]:
    """Keep connections of this thread from logging each attempt during the block; only the last failure is reported."""
    thread, logger = threading.get_ident(), logging.getLogger("urllib3.connectionpool")

    def others(record: logging.LogRecord) -> bool:
        return record.thread != thread

    logger.addFilter(others)
    try:
        yield
    finally:
        logger.removeFilter(others)


def _output(
    namespace: str, name: str, manifest: Manifest, version: int | None, report: RunReport | None
) -> OutputDataset:
    from openlineage.client.event_v2 import OutputDataset
    from openlineage.client.facet_v2 import dataset_version_dataset, output_statistics_output_dataset
    from openlineage.client.generated.base import DatasetFacet

    facets: dict[str, Any] = {}
    if version is not None:
        facets["version"] = dataset_version_dataset.DatasetVersionDatasetFacet(datasetVersion=str(version))
    if report is not None and report.quality is not None:
        properties = {name: report.quality[name] for name in ("k", "questions", "recall")}
        compared = report.quality["compared"]
        if compared:
            properties |= {"before": compared["before"], "versionBefore": compared["version"]}
        facets["indexmill_quality"] = DatasetFacet().with_additional_properties(**properties)
    corpus = manifest.corpus
    facets["indexmill_index"] = DatasetFacet().with_additional_properties(
        documents=corpus.documents,
        passages=corpus.passages,
        families=sorted(manifest.families),
        corpusFingerprint=corpus.fingerprint,
    )
    statistics = output_statistics_output_dataset.OutputStatisticsOutputDatasetFacet(
        rowCount=corpus.documents,
        size=sum(artifact.bytes for artifact in manifest.artifacts),
        fileCount=len(manifest.artifacts),
    )
    return OutputDataset(namespace, name, facets=facets, outputFacets={"outputStatistics": statistics})


def _counts(report: RunReport) -> dict[str, Any]:
    return {
        "partsMade": report.parts_made,
        "partsReused": report.parts_reused,
        "refusedRows": report.total("quarantined"),
        "modelCalls": report.total("llm_calls"),
        "inputTokens": report.total("llm_input_tokens"),
        "outputTokens": report.total("llm_output_tokens"),
        "cost": report.cost,
    }
