"""A file that caches language models' answers, so that a repeated evaluation does not pay for them again.

A line of the file contains one usable answer and a hash of all its inputs (``key_of``): the model and its parameters,
the prompt, the schema and the length limit. It does not contain the prompt. Lines are only appended, each as soon as
its answer arrives; the truncated line of an interrupted run is ignored.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

from indexmill.answer.answer_types import Bill
from indexmill.answer.asking import read_answer
from indexmill.errors import BadInput, DiskFull, IndexmillError
from indexmill.forks import Lock
from indexmill.models.llm import LLM, Completion, LlmWrapper, Request, key_of
from indexmill.models.readable import BadAnswer
from indexmill.store.canonical import canonical_json, strict_json

_FIELDS = {"input_tokens": int, "key": str, "model": str, "output_tokens": int, "text": str}
_BEGINNING = b'{"input_tokens":'  # the beginning of every line


class AnswerCache:
    """The answers in a file, which is created if it is missing. Thread-safe.

    Raises BadInput if the file cannot be read and appended to, or for a line that is not an answer.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.savings = Bill(0, 0, 0)
        """The number of saved calls, and the tokens originally billed for them."""
        self._lock = Lock()
        self._answers: dict[str, Completion] = {}
        try:
            with self.path.open("ab"):
                pass  # opened to fail before anything is paid for
            data = self.path.read_bytes()
        except OSError as error:
            raise self._unusable(error) from error
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.strip():
                self._read(f"{path}:{number}", line)
        self._apart = b"" if not data or data.endswith(b"\n") else b"\n"

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, key: str) -> Completion | None:
        """Return the cached answer for a key, and count it as saved; None if there is none."""
        with self._lock:
            cached = self._answers.get(key)
            if cached is not None:
                saved = (1, cached.input_tokens, cached.output_tokens)
                self.savings = Bill(*map(sum, zip(self.savings, saved, strict=True)))
            return cached

    def add(self, key: str, completion: Completion) -> None:
        """Add an answer, unless its key has one. Raises BadInput or DiskFull if the file cannot be written."""
        fields = {name: key if name == "key" else getattr(completion, name) for name in _FIELDS}
        with self._lock:
            if key in self._answers:
                return
            try:
                with self.path.open("ab") as file:
                    file.write(self._apart + canonical_json(fields))
            except OSError as error:
                raise self._unusable(error) from error
            self._apart = b""
            self._answers[key] = completion

    def _read(self, where: str, line: bytes) -> None:
        try:
            fields = strict_json(line)
        except ValueError:
            if line.startswith(_BEGINNING) or _BEGINNING.startswith(line):
                return  # cut off
            fields = None
        if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _FIELDS:
            raise BadInput(f"{where}: is not a cached answer; name a file that evaluate --answers wrote, or a new one")
        key = fields.pop("key")
        self._answers.setdefault(key, Completion(finish_reason="stop", **fields))

    def _unusable(self, error: OSError) -> IndexmillError:
        bad = BadInput(f"{self.path}: answers cannot be cached there: {error.strerror or error}")
        return DiskFull.of(error, self.path) or bad


class CachedLlm(LlmWrapper[LLM]):
    """A model that is called only for answers missing from the cache; see ``LLM``.

    Concurrent equal requests are sent once. An unusable answer is not cached; a repaired answer is cached under the
    original request.
    """

    def __init__(self, llm: LLM, cache: AnswerCache) -> None:
        super().__init__(llm)
        self._cache = cache
        self._under_way: dict[tuple[int, str], asyncio.Event] = {}

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """Return the cached answer, or else the model's. A cached answer has the tokens that were originally billed."""
        key = key_of(self.fingerprint, request)
        call = (id(asyncio.get_running_loop()), key)
        while call in self._under_way:
            await self._under_way[call].wait()
        cached = self._cache.get(key)
        if cached is not None:
            return cached
        self._under_way[call] = asyncio.Event()
        try:
            completion = await self._llm.complete(request, correction)
            try:
                read_answer(completion, request.schema)
            except BadAnswer:
                pass
            else:
                self._cache.add(key, completion)
            return completion
        finally:
            self._under_way.pop(call).set()
