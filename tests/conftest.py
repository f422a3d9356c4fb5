"""What every test shares."""

from __future__ import annotations

import gc
import os
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

# One thread per library: pytest runs a process per core, and results must not depend on the machine.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(_name, "1")

os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"  # read when Haystack is imported; on by default

import pytest  # noqa: E402 - after the environment is set
from hypothesis import HealthCheck, settings  # noqa: E402

from tests.storage.quick import quick_folder, quick_root  # noqa: E402

if TYPE_CHECKING:
    from storage.folder import FolderStore
    from tests.flows.children import Forks
    from tests.storage.services import FaultProxy

# pytest's own folders, too: see `tests.storage.quick`.
if (_root := quick_root()) is not None:
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(_root))

# How long an example takes says nothing about the code where the machine is busy; pytest's own timeout ends what hangs.
settings.register_profile(
    "any machine",
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.function_scoped_fixture],
)
settings.load_profile("any machine")


@pytest.fixture
def quick() -> Iterator[Path]:
    """A folder in memory."""
    with quick_folder() as folder:
        yield folder


@pytest.fixture
def store(quick: Path) -> FolderStore:
    """An empty store in memory."""
    from storage.folder import init_folder

    return init_folder(quick / "store")


@pytest.fixture(scope="module")
def s3() -> Iterator[str]:
    """The endpoint of an S3 service on this machine."""
    from tests.storage.services import s3_service

    with s3_service() as endpoint:
        yield endpoint


@pytest.fixture
def fault_proxy(s3: str) -> Iterator[FaultProxy]:
    """A proxy before it that passes everything on until a test says otherwise; the environment leads to it."""
    from tests.storage.services import FaultProxy, s3_environment

    with FaultProxy(s3) as proxy, s3_environment(proxy.url):
        yield proxy


RETRYING = (
    "indexmill.models.retries",
    "indexmill.store.bucket",
    "tasks.llm.calls",
    "tasks.stages.ingest.sources.git",
    "tasks.stages.ingest.sources.web_client",
)
"""The modules that try again after a `_FIRST_WAIT`, and after twice as long each time after that."""


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """What fails is tried again after a hundredth of a second."""
    for name in RETRYING:
        if (module := sys.modules.get(name)) is not None:
            monkeypatch.setattr(module, "_FIRST_WAIT", 0.01)


@pytest.fixture(scope="session")
def forks() -> Iterator[Forks]:
    """A process that builds in children of its own, which takes seconds to start."""
    from tests.flows.children import Forks

    with Forks() as process:
        yield process


@pytest.fixture(autouse=True)
def no_faults() -> Iterator[None]:
    """What a test broke is whole again after it."""
    yield
    if (faults := sys.modules.get("storage.faults")) is not None:
        faults.arm(0)
        faults.install(None)


@pytest.fixture
def exported(tmp_path: Path) -> Path:
    """A small snapshot as an exported folder; the store that it is from is `tmp_path / "store"`."""
    import indexmill
    from tests.indexmill.small_snapshot import export, publish

    publish(tmp_path / "store")
    with indexmill.open(tmp_path / "store") as snapshot:
        export(snapshot, tmp_path / "exported")
    return tmp_path / "exported"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """Collect without looking for garbage: there is none, and each look goes through all modules that are imported.

    Later looks leave out what is there by then, and are fewer.
    """
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.set_threshold(20_000)
        gc.enable()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Slow tests have half an hour on a busy machine, unless they say otherwise.

    What takes long comes first, single tests by their timeout and then modules: where several processes run the tests,
    short ones are left for the end.
    """
    for item in items:
        if item.get_closest_marker("slow") is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(1800))
    long = {item.path for item in items if item.get_closest_marker("end_to_end") or "contracts" in item.path.parts}
    items.sort(key=lambda item: (-max(_seconds_allowed(item), 1800), item.path not in long))


def _seconds_allowed(item: pytest.Item) -> float:
    marker = item.get_closest_marker("timeout")
    return marker.args[0] if marker is not None else 0.0
