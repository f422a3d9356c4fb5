"""Settings of a run and of its gates; none of them affects what is retrieved."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

from pydantic import BeforeValidator, Field, field_serializer, field_validator, model_validator

from indexmill.retrieve.registry import METHODS
from schemas.config.base import Settings
from schemas.corpus import as_tuple


class GateSettings(Settings):
    """What a corpus and its index have to hold to be published; nothing of this reaches the index."""

    questions: Path | None = Field(
        None, description="JSON Lines of {id, question, gold_ids}; recall on them is measured before publishing"
    )
    methods: Annotated[tuple[str, ...], BeforeValidator(as_tuple)] = Field(
        ("fused",), min_length=1, description="the retrieval methods whose recall is measured"
    )
    k: int = Field(5, ge=1, le=1000, description="recall is of the first k documents")
    tolerance: float = Field(
        0.02, ge=0, le=1, description="recall that a method may lose against the version before; more is refused"
    )
    minimum: Annotated[float, Field(ge=0, le=1)] | None = Field(
        None, description="recall below which nothing is published, whatever the version before had"
    )
    max_shrink: float = Field(
        0.2,
        ge=0,
        le=1,
        description="the share of documents that one build may take away without --allow-shrink: a night's deletions "
        "are a few in a hundred, a mount or an export that failed takes a whole source",
    )

    @field_validator("methods")
    @classmethod
    def _known_methods(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        unknown = sorted(set(value) - set(METHODS))
        if unknown:
            raise ValueError(f"there is no method {unknown[0]!r}; there are {', '.join(METHODS)}")
        return tuple(dict.fromkeys(value))

    @model_validator(mode="after")
    def _minimum_of_something(self) -> GateSettings:
        if self.minimum is not None and self.questions is None:
            raise ValueError("minimum is the recall on questions, and there are none: set gates.questions, too")
        return self


class TlsSettings(Settings):
    """Files of mutual TLS with a Dask cluster; without them, Dask's own settings hold (distributed.comm.tls)."""

    ca: Path | None = Field(None, description="certificates of the authorities that this side trusts")
    certificate: Path | None = Field(None, description="the certificate of this side")
    key: Path | None = Field(None, description="its key: a file that only you may read")

    @model_validator(mode="after")
    def _all_or_none(self) -> TlsSettings:
        missing = [name for name, path in self if path is None]
        if 0 < len(missing) < len(type(self).model_fields):
            raise ValueError(f"{' and '.join(missing)} missing: give ca, certificate and key, or none of them")
        return self


class DaskSettings(Settings):
    """The Dask cluster that does the work; without address and cluster, a run starts workers of its own."""

    address: str | None = Field(None, description="a running scheduler, tls://HOST:PORT; `--dask` overrides it")
    insecure: bool = Field(
        False, description="allow a cluster without TLS on other machines: whoever reaches it runs code there"
    )
    tls: TlsSettings = TlsSettings()
    cluster: str | None = Field(
        None,
        description="where there is no address, a class of clusters: a run makes one and closes it at its end, such as "
        "dask_jobqueue.SLURMCluster or dask_kubernetes.operator.KubeCluster",
    )
    arguments: dict[str, Any] = Field(default_factory=dict, description="the arguments of the class")
    adapt: dict[str, Any] | None = Field(
        None,
        description="let the cluster follow the work: the arguments of its method adapt, such as {minimum: 0, maximum: "
        "40}; without it, it has run.workers workers, or those that its arguments name",
    )
    patience_seconds: int = Field(300, ge=1, description="a run waits for workers this long; then it ends")

    @field_serializer("arguments", when_used="json")
    def _unsaid(self, value: dict[str, Any]) -> dict[str, str]:
        """What a run records: names alone, since a class may be given secrets."""
        return dict.fromkeys(value, "...")

    @model_validator(mode="before")
    @classmethod
    def _named(cls, value: Any) -> Any:
        if isinstance(value, str):
            return {"address" if "://" in value else "cluster": value}
        return value


class RunSettings(Settings):
    """How a run works; nothing of this reaches the index, but for the list of software that `sbom` adds."""

    workers: Annotated[int, Field(ge=1)] | None = Field(None, description="worker processes; default: the cores")
    dask: DaskSettings = DaskSettings()
    lease_seconds: int = Field(120, ge=10, description="a lease not renewed for this long may be taken over")
    strict: bool = Field(False, description="a refused row ends the run with exit code 2")
    max_failed_share: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published when more of the rows than this are refused, and more than ten: exit code 3",
    )
    max_stand_ins: float = Field(
        0.05,
        ge=0.0,
        le=1.0,
        description="nothing is published when a language model did not write more of a stage's texts than this, and "
        "more than ten or all of them: exit code 3",
    )
    signing_key_file: Path | None = Field(
        None, description="a private key of `indexmill sign --new-key`; every version that is built is signed with it"
    )
    sbom: bool = Field(
        False,
        description="every version has a list of the software that built it (CycloneDX), the artifact `sbom.cdx.json`; "
        "another release of any of it then makes a new version",
    )
    report: Path | None = Field(
        None,
        description="an HTML file that each build which publishes a version writes anew: what changed, how good it is, "
        "what it cost; `indexmill report` writes it by hand",
    )
    log: Path | None = Field(
        None,
        description="a file to which every run appends what it tells, with the time before each line; at 10 MB it is "
        "set aside as FILE.1, and up to FILE.4 are kept",
    )
    wave_shards: Annotated[int, Field(ge=1)] | None = Field(
        None, description="shards in a wave of `backfill`; default: as many as hold about four million tokens"
    )
