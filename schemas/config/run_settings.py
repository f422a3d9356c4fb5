"""Settings of a run and of its gates; none of them affects retrieval."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_serializer, field_validator, model_validator

from indexmill.retrieve.method_registry import METHODS
from schemas.config.settings_section import Settings
from schemas.sources import as_tuple


class GateSettings(Settings):
    """The conditions for publishing an index; they do not affect the index itself."""

    questions: Path | None = Field(
        None, description="JSON Lines of {id, question, gold_ids}; recall on them is measured before publishing"
    )
    methods: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        ("fused",), min_length=1, description="the retrieval methods whose recall is measured"
    )
    k: int = Field(5, ge=1, le=1000, description="recall counts the first k documents")
    tolerance: float = Field(
        0.02, ge=0, le=1, description="maximum loss of recall of a method against the previous version; more is refused"
    )
    minimum: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="minimum recall: below it nothing is published, whatever the previous version had"
    )
    max_shrink: float = Field(
        0.2,
        ge=0,
        le=1,
        description="the share of documents that one build may delete without --allow-shrink: nightly deletions are "
        "a few per cent, while a failed mount or export loses a whole source",
    )
    max_unread_share: float = Field(
        0.5,
        ge=0,
        le=1,
        description="the share of the corpus' files that no reader takes, by their suffixes; more is refused, unless "
        "they are ten or fewer",
    )

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(METHODS))
        if unknown:
            raise ValueError(f"there is no method {unknown[0]!r}; choose from {', '.join(METHODS)}")
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _minimum_needs_questions(self) -> GateSettings:
        if self.minimum is not None and self.questions is None:
            raise ValueError("minimum applies to the recall on questions, but none are set: set gates.questions, too")
        return self


class TlsSettings(Settings):
    """Files of mutual TLS with a Dask cluster; without them, Dask's own settings apply (distributed.comm.tls)."""

    ca: Path | None = Field(None, description="certificates of the authorities that this side trusts")
    certificate: Path | None = Field(None, description="the certificate of this side")
    key: Path | None = Field(None, description="the key of this side: a file that only you may read")

    @model_validator(mode="after")
    def _all_or_none(self) -> TlsSettings:
        missing = [name for name, path in self if path is None]
        if 0 < len(missing) < len(type(self).model_fields):
            raise ValueError(f"{' and '.join(missing)} missing: give ca, certificate and key, or none of them")
        return self


class DaskSettings(Settings):
    """The Dask cluster that does the work; without address and cluster, a run starts its own workers."""

    address: str | None = Field(None, description="a running scheduler, tls://HOST:PORT; `--dask` overrides it")
    insecure: bool = Field(
        False, description="allow a cluster without TLS on other machines: anyone who reaches it can run code there"
    )
    tls: TlsSettings = TlsSettings()
    cluster: str | None = Field(
        None,
        description="without an address, a class of clusters, such as dask_jobqueue.SLURMCluster or "
        "dask_kubernetes.operator.KubeCluster: a run creates one and closes it at its end",
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="the arguments of the class")
    adapt: dict[str, Any] | None = Field(
        None,
        description="scale the cluster with the work: the arguments of its method adapt, such as {minimum: 0, maximum: "
        "40}; without them, the cluster has run.workers workers, or as many as its arguments request",
    )
    patience_seconds: int = Field(300, ge=1, description="how long a run waits for workers before it ends")

    @field_serializer("arguments", when_used="json")
    def _unsaid(self, value: dict[str, Any]) -> dict[str, str]:
        """Return the arguments' names for the record of a run, without the values, which may be secrets."""
        return dict.fromkeys(value, "...")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"address" if "://" in value else "cluster": value}
        return value


class RunSettings(Settings):
    """How a run works; none of this affects the index, except the list of software that `sbom` adds."""

    workers: Annotated[int, Field(ge=1)] | None = Field(None, description="worker processes; default: one per core")
    dask: DaskSettings = DaskSettings()
    lease_seconds: int = Field(120, ge=10, description="a lease not renewed for this long may be taken over")
    strict: bool = Field(False, description="a refused row ends the run with exit code 2")
    max_failed_share: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published (exit code 3) if a larger share of rows, and more than ten, is refused",
    )
    max_stand_ins: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published (exit code 3) if a larger share of a stage's texts, and more than ten or all "
        "of them, are fallbacks for a language model",
    )
    signing_key_file: Path | None = Field(
        None, description="a private key of `indexmill sign --new-key`, with which every built version is signed"
    )
    sbom: bool = Field(
        False,
        description="add a list of the software that built it (CycloneDX) to every version, as the artifact "
        "`sbom.cdx.json`; a new release of any of that software then makes a new version",
    )
    report: Path | None = Field(
        None,
        description="an HTML file that each build which publishes a version rewrites, with changes, quality and cost; "
        "`indexmill report` writes it by hand",
    )
    log: Path | None = Field(
        None,
        description="a file to which every run appends its messages, each with its time; at 10 MB it is renamed "
        "FILE.1, and files up to FILE.4 are kept",
    )
    wave_shards: Annotated[int, Field(ge=1)] | None = Field(
        None, description="shards in a wave of `backfill`; default: as many as have about four million tokens"
    )
