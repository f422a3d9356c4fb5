"""The environment variables of a run's processes: secrets are passed only to processes that need them.

No process that a run starts needs Prefect's variables, and only stages that ask a language model need keys. Processes
that read corpus files get only the variables that they need.
"""

from __future__ import annotations

import contextlib
import os
import re
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:  # child processes import this before anything else
    from pathlib import Path

    from schemas.config import EndpointSettings
    from schemas.sources import SourceSettings

_OF_A_READER = re.compile(
    r"PATH|HOME|USER|LOGNAME|TZ|TMPDIR|TEMP|TMP|LANG|LANGUAGE|LC_[A-Z]+|XDG_\w+"
    r"|LD_LIBRARY_PATH|LD_PRELOAD|VIRTUAL_ENV|CONDA_PREFIX|PYTHON\w*|COVERAGE_\w+"
    r"|(OMP|OPENBLAS|MKL)_NUM_THREADS|MALLOC_\w+|ARROW_\w+|TESSDATA_PREFIX"
)
"""The variables that configure Python, its libraries and tesseract."""

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
"""The variables that give native libraries one thread, as in workers: they are read when a library is loaded."""

_OF_A_STORE = {
    **dict.fromkeys(("s3", "s3a"), ("AWS_",)),
    "gs": ("GOOGLE_", "GCP_"),
    **dict.fromkeys(("az", "abfs", "abfss"), ("AZURE_",)),
}
"""The prefixes of variables that give access to a store, by the scheme of its URL."""

_OF_A_PLACE = {"git": ("GIT_", "SSH_"), "sql": ("PG", "MYSQL_")}
"""The prefixes of variables that give access to a source, by its kind."""

_OF_A_NETWORK = re.compile(
    r"(https?|all|no)_proxy|SSL_CERT_(FILE|DIR)|REQUESTS_CA_BUNDLE|CURL_CA_BUNDLE", re.IGNORECASE
)
"""The variables that configure access to other machines."""

_NAMED = re.compile(r"\$\{?(\w+)\}?")

_SECRET = re.compile(r"(^|_)(API_?)?(KEY|SECRET|TOKEN|PASSWORD)$", re.IGNORECASE)


@contextlib.contextmanager
def variables_set(values: Mapping[str, str]) -> Iterator[None]:
    """Set variables of this process's environment during the block."""
    before = {name: os.environ.get(name) for name in values}
    os.environ.update(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name) if value is None else os.environ.__setitem__(name, value)


def variables_of(url: str) -> frozenset[str]:
    """Return the variables of this process's environment that give access to a bucket."""
    begin = _OF_A_STORE.get(url.partition("://")[0], ())
    return frozenset(name for name in os.environ if name.startswith(begin)) if begin else frozenset()


def variables_of_source(place: SourceSettings) -> frozenset[str]:
    """Return the variables of this process's environment that a source may need; a plug-in may need all variables."""
    if place.kind == "plugin":
        return frozenset(os.environ)
    url: str = getattr(place, "url", "")
    named = set(_NAMED.findall(url)) if place.kind == "sql" else set()
    begin = _OF_A_PLACE.get(place.kind, ())
    return variables_of(url) | {name for name in os.environ if name in named or (begin and name.startswith(begin))}


def secret_variables(
    endpoints: Iterable[EndpointSettings] = (), store: Path | str | None = None, places: Iterable[SourceSettings] = ()
) -> frozenset[str]:
    """Return the variables of this process's environment that contain, or may contain, a secret.

    These are the `api_key_env` of endpoints, variables whose names end like a key's name, and Prefect's variables, some
    of which contain passwords. store, places: a store and sources, whose access variables are left out.
    """
    named = {endpoint.api_key_env for endpoint in endpoints}
    needed = variables_of(str(store)).union(*map(variables_of_source, places)) - named
    return frozenset(
        name
        for name in os.environ
        if name in named or name.startswith("PREFECT_") or (_SECRET.search(name) and name not in needed)
    )


def reader_environment() -> dict[str, str]:
    """Return the environment of a process that reads corpus files: only what Python and its libraries need."""
    secret = secret_variables()
    return {name: value for name, value in os.environ.items() if _OF_A_READER.fullmatch(name) and name not in secret}


def source_environment(place: SourceSettings) -> dict[str, str]:
    """Return the environment of a process that reads a source's records, with the variables that give access."""
    names = variables_of_source(place) | {name for name in os.environ if _OF_A_NETWORK.fullmatch(name)}
    more = {name: os.environ[name] for name in names if not name.startswith("PREFECT_")}
    return {**reader_environment(), **more}


def without(names: Collection[str]) -> dict[str, str]:
    """Return the environment of this process without some variables."""
    return {name: value for name, value in os.environ.items() if name not in names}


def worker_environment(
    endpoints: Sequence[EndpointSettings] = (),
    store: Path | str | None = None,
    places: Iterable[SourceSettings] = (),
    *,
    asks: bool = True,
) -> dict[str, str]:
    """Return the environment of workers, or of a process that tries documents.

    endpoints: the endpoints of the models that the run may ask. store, places: the store and the sources whose
    credentials the workers need. asks: False for a process that asks no model.
    """
    if not any(endpoint.asks for endpoint in endpoints) or not asks:
        return without(secret_variables(endpoints, store, places))
    return without([name for name in os.environ if name.startswith("PREFECT_")])
