"""The default back-end: OpenVINO runs a converted graph, without torch in the process.

Measured speed with all-MiniLM-L6-v2 on a core with bf16 instructions: 7,500 tokens a second, with matrix products at
the speed of the hardware. Threads are not pinned: by default OpenVINO pins them to the first cores, so two workers of
one thread each would share one core at half speed.
"""

from __future__ import annotations

import json
import os
import queue
import sys
from collections import deque
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache, cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from indexmill.errors import ConfigurationError, CorruptBlob, ModelUnavailable
from indexmill.extras import not_installed
from indexmill.forks import Lock, keep_forever, renew_in_children
from indexmill.models.embedder import (
    NO_PROMPTS,
    Encoded,
    EncoderFingerprint,
    Pass,
    Prompts,
    TokenEncoder,
    cut_dimension,
)
from indexmill.models.padded_rows import pad_rows, padded_rows
from indexmill.models.pooling import POOLINGS, pooled
from indexmill.store.canonical import digest_of, digest_of_file

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from numpy.typing import NDArray

ENCODER_FILES = ("openvino.xml", "openvino.bin", "tokenizer.json", "encoder.json")
"""The files of an encoder: the graph, the graph's constants, the tokenizer, and the settings (canonical JSON)."""


@contextmanager
def without_telemetry() -> Iterator[None]:
    """Hide `openvino_telemetry` from imports in the block: it writes to the user's home and starts a sender."""
    hidden = "openvino_telemetry" not in sys.modules
    if hidden:
        sys.modules["openvino_telemetry"] = None  # type: ignore[assignment]  # makes the import fail
    try:
        yield
    finally:
        if hidden:
            sys.modules.pop("openvino_telemetry", None)


def import_openvino() -> Any:
    """Import openvino without its telemetry; raises ModelUnavailable if it is not installed."""
    with without_telemetry():
        try:
            import openvino  # an optional library
        except ImportError as error:
            raise not_installed("the encoder", "openvino", error) from error
    return openvino


def openvino_core() -> Any:
    """Return the OpenVINO core that all graphs of this process share; raises ModelUnavailable without OpenVINO.

    The core is never freed. Each core sets a signal stack for the thread that first uses it, and frees that stack with
    itself (OpenVINO 2026.4, `SigAltStackSetup` in its CPU plugin). If another core or thread intervened, the thread
    keeps the freed stack, and the next SIGTERM or Ctrl-C causes a segmentation fault. This happened when two encoders
    were closed in the order of opening, or when another thread closed an encoder.
    """
    return _core_of(os.getpid())


@cache
def _core_of(process: int) -> Any:
    """Create a process's core; a forked child needs its own, since the parent's threads do not exist there."""
    core = import_openvino().Core()
    keep_forever(core)
    return core


class _Runtime(NamedTuple):
    """A graph compiled in this process.

    padded: True if the graph's second input is the number of rows to pad to. free: the idle inference requests, each of
    which runs one pass at a time.
    """

    graph: Any
    padded: bool
    requests: list[Any]
    free: queue.SimpleQueue[Any]
    version: str


class OpenVINOEmbedder(TokenEncoder):
    """An Embedder that runs a converted graph; open it with `OpenVINOEmbedder.open`."""

    def __init__(
        self,
        files: Mapping[str, Path],
        *,
        threads: int,
        precision: str,
        streams: int,
        prompts: Prompts,
        dimension: int | None,
    ) -> None:
        if precision not in ("auto", "f32", "bf16", "int8"):
            raise ConfigurationError(f"precision is {precision!r}; it must be auto, f32, bf16 or int8")
        try:
            settings = json.loads(files["encoder.json"].read_bytes())
            tokenizer = files["tokenizer.json"].read_bytes()
        except FileNotFoundError as error:
            raise ModelUnavailable(f"{error.filename}: no such encoder file; convert the model again") from error
        quantised = settings.get("quantised", {})
        if not isinstance(quantised, dict) or not isinstance(quantised.get("calibration", ""), str):
            raise CorruptBlob(f"{files['encoder.json']}: quantised is {quantised!r:.80}; expected a calibration")
        if precision == "int8" and not quantised:
            raise ConfigurationError(f"{files['encoder.json']}: precision is int8, but this encoder is not quantised")
        self._settings: dict[str, Any] = settings
        self._calibration = str(quantised.get("calibration", ""))
        self._files = dict(files)
        self._threads, self._streams, self._precision = threads, streams, precision
        self._lock = Lock()
        super().__init__(tokenizer, int(settings["max_tokens"]), prompts)
        self.pooling = str(settings["pooling"])
        if not set(self.pooling.split("+")) <= set(POOLINGS):
            raise CorruptBlob(
                f"{files['encoder.json']}: pooling is {self.pooling!r:.80}; expected one or more of "
                f"{list(POOLINGS)}, joined by '+'"
            )
        self.pools_spans = self.pooling == "mean"
        self._included = bool(settings.get("include_prompt", True))
        self._skip = {query: 0 if self._included else self._prompt_tokens(query) for query in (False, True)}
        self._whole_dimension = int(settings["dimension"])
        self.dimension = cut_dimension(dimension, self._whole_dimension)
        self._opened: _Runtime | None = self._open()
        renew_in_children(self)

    def _open(self) -> _Runtime:
        """Compile the graph for this CPU; raises ModelUnavailable, or CorruptBlob for an unreadable graph."""
        openvino, core = import_openvino(), openvino_core()
        files, precision = self._files, self._precision
        try:
            graph = core.read_model(str(files["openvino.xml"]), str(files["openvino.bin"]))
            padded = pad_rows(openvino, graph)
        except RuntimeError as error:
            raise CorruptBlob(
                f"{files['openvino.xml']}: OpenVINO {openvino.__version__} cannot read this graph ({error})"
            ) from error
        if precision in ("auto", "int8"):
            capable = "BF16" in core.get_property("CPU", "OPTIMIZATION_CAPABILITIES")
            precision = "bf16" if capable else "f32"
        compiled = core.compile_model(
            graph,
            "CPU",
            {
                "INFERENCE_PRECISION_HINT": precision,
                "INFERENCE_NUM_THREADS": self._threads * self._streams,
                "NUM_STREAMS": self._streams,
                "PERFORMANCE_HINT": "LATENCY",
                "ENABLE_CPU_PINNING": False,
            },
        )
        free: queue.SimpleQueue[Any] = queue.SimpleQueue()
        requests = [compiled.create_infer_request() for _ in range(self._streams)]
        for request in requests:
            free.put(request)
        return _Runtime(compiled, padded, requests, free, str(openvino.__version__))

    @property
    def _runtime(self) -> _Runtime:
        """The graph, which is opened in this process on first use."""
        runtime = self._opened
        if runtime is None:
            with self._lock:
                runtime = self._opened = self._opened or self._open()
        return runtime

    def after_fork(self) -> None:
        """Make a child process reopen the graph at first use, since the parent's threads do not exist there."""
        if self._opened is not None:
            keep_forever(self._opened.graph, *self._opened.requests)
            self._opened = None

    @classmethod
    def open(
        cls,
        folder: Path | str | Mapping[str, Path],
        *,
        threads: int = 1,
        precision: str = "auto",
        streams: int = 1,
        prompts: Prompts = NO_PROMPTS,
        dimension: int | None = None,
    ) -> OpenVINOEmbedder:
        """Open a converted encoder (see `convert`), passed as a folder with the four files, or as their paths by name.

        `precision` is "auto" (bf16 if the CPU supports it, else f32), "bf16" or "f32"; in a quantised encoder it
        applies to all but the quantised products, and "int8" is the same as "auto". `streams` passes run concurrently,
        each with `threads` threads; a pass gives the same bits in any stream. `prompts` are put before texts. Vectors
        are truncated to `dimension`; None keeps the model's own.
        Raises ModelUnavailable if a file or the package openvino is missing, CorruptBlob for an unreadable graph.
        """
        if isinstance(folder, (str, Path)):
            folder = {name: Path(folder) / name for name in ENCODER_FILES}
        missing = sorted(set(ENCODER_FILES) - set(folder))
        if missing:
            raise ModelUnavailable(f"an encoder has the files {list(ENCODER_FILES)}; missing: {missing}")
        return cls(folder, threads=threads, precision=precision, streams=streams, prompts=prompts, dimension=dimension)

    @cached_property
    def fingerprint(self) -> EncoderFingerprint:
        """The inputs that determine the vectors. The first access runs the self-test."""
        import tokenizers  # an optional library

        effective = self._runtime.graph.get_property("INFERENCE_PRECISION_HINT").to_string()
        precision = {"bfloat16": "bf16", "float": "f32", "float32": "f32"}.get(effective, effective)
        return EncoderFingerprint(
            model=self._settings["model"],
            weights=self._settings["weights"],
            tokenizer=digest_of_file(self._files["tokenizer.json"]),
            graph=digest_of("".join(digest_of_file(self._files[f"openvino.{end}"]) for end in ("xml", "bin")).encode()),
            backend="openvino",
            precision=f"int8+{precision}" if self._calibration else precision,
            instructions=self._instructions(),
            pooling=self.pooling if self._included else f"{self.pooling} without the prompt",
            max_tokens=self.max_tokens,
            dimension=self.dimension,
            libraries={"openvino": self._runtime.version, "tokenizers": tokenizers.__version__},
            reproducible=self._is_reproducible(),
            query_prompt=self.prompts.query,
            document_prompt=self.prompts.document,
            whole_dimension=self._whole_dimension if self.dimension < self._whole_dimension else 0,
            calibration=self._calibration,
        )

    def _instructions(self) -> str:
        """Return OpenVINO's name for the instruction set of its kernels; empty if it does not report any."""
        try:
            requirements = str(self._runtime.graph.get_property("RUNTIME_REQUIREMENTS"))
        except RuntimeError:
            return ""
        return next((part[4:] for part in requirements.split(";") if part.startswith("isa=")), "")

    def _encoded(self, passes: Iterable[Pass]) -> Iterator[Encoded]:
        waiting: deque[Pass] = deque()

        def ids() -> Iterator[NDArray[Any]]:
            for batch in passes:
                waiting.append(batch)
                yield batch.ids

        for hidden in self._all_hidden(ids()):
            skip = self._skip[waiting.popleft().query]
            yield Encoded(np.stack([pooled(states, self.pooling, skip) for states in hidden]), hidden)

    def _rest(self, texts: int) -> Iterable[int]:
        """Return powers of two, to bound the number of shapes: attention keeps 0.06 MB per shape in each stream."""
        return [1 << bit for bit in reversed(range(texts.bit_length())) if texts >> bit & 1]

    def _inputs(self, ids: NDArray[Any]) -> dict[int, NDArray[np.int64]]:
        inputs = {0: np.ascontiguousarray(ids, np.int64)}
        if self._runtime.padded:
            inputs[1] = np.array([padded_rows(ids.size)], np.int64)
        return inputs

    def _hidden(self, ids: NDArray[Any]) -> NDArray[np.float32]:
        runtime = self._runtime
        request = runtime.free.get()
        try:
            answer = request.infer(self._inputs(ids), share_inputs=True)
            hidden: NDArray[np.float32] = answer[runtime.graph.output(0)]
        finally:
            runtime.free.put(request)
        return hidden

    def _all_hidden(self, passes: Iterable[NDArray[Any]]) -> Iterator[NDArray[np.float32]]:
        """Yield the hidden states of passes, running as many passes at once as there are free streams."""
        if self._streams == 1:
            yield from map(self._hidden, passes)
            return
        free = self._runtime.free
        running: deque[Any] = deque()
        try:
            for ids in passes:
                try:
                    request = free.get(block=not running)  # a thread that holds a request never waits for another
                except queue.Empty:
                    running[0].wait()
                    yield _result(running[0])
                    request = running.popleft()
                request.start_async(self._inputs(ids), share_inputs=True)
                running.append(request)
            while running:
                running[0].wait()
                yield _result(running[0])
                free.put(running.popleft())
        finally:
            for request in running:
                request.wait()
                free.put(request)


def _result(request: Any) -> NDArray[np.float32]:
    """Copy the output of a pass, since the request's next pass overwrites it."""
    return np.array(request.get_output_tensor(0).data)
