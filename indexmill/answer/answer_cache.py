"""Answers of language models kept in a file, so that an evaluation that is run again pays for none of them twice.

A line of the file is one answer that could be used, under the key of all that shapes it (``key_of``): the model and its
parameters, the prompt, the schema and the longest answer. It holds no prompt. Lines are only ever added, each as soon
as its answer came; one that was cut off when a run was ended counts for none.
"""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import NamedTuple

from indexmill.answer.asking import read_answer
from indexmill.errors import BadInput, DiskFull, IndexmillError
from indexmill.forks import Lock
from indexmill.models.llm import LLM, Completion, LlmWrapper, Request, key_of
from indexmill.models.readable import BadAnswer
from indexmill.store.canonical import canonical_json, strict_json

__all__ = ["AnswerCache", "CachedLlm", "Savings"]

_FIELDS = {"input_tokens": int, "key": str, "model": str, "output_tokens": int, "text": str}
_BEGINNING = b'{"input_tokens":'  # of every line


class Savings(NamedTuple):
    """What the file spared: calls that were not made, and the tokens that they were billed for when they were."""

    calls: int = 0
    input_tokens: int = 0
    output_tokens: int = 0


class AnswerCache:
    """The answers in a file, which is made where there is none. Thread-safe.

    Raises BadInput where it cannot be read and added to, or holds anything else, naming the line.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        self.spared = Savings()
        self._lock = Lock()
        self._held: dict[str, Completion] = {}
        try:
            with self.path.open("ab"):
                pass  # before anything is paid for
            data = self.path.read_bytes()
        except OSError as error:
            raise self._unusable(error) from error
        for number, line in enumerate(data.split(b"\n"), start=1):
            if line.strip():
                self._read(f"{path}:{number}", line)
        self._apart = b"" if not data or data.endswith(b"\n") else b"\n"

    def __len__(self) -> int:
        return len(self._held)

    def take(self, key: str) -> Completion | None:
        """The answer of a key, if it is kept; counts it as spared."""
        with self._lock:
            found = self._held.get(key)
            if found is not None:
                more = (1, found.input_tokens, found.output_tokens)
                self.spared = Savings(*map(sum, zip(self.spared, more, strict=True)))
            return found

    def keep(self, key: str, completion: Completion) -> None:
        """Add an answer, unless its key has one. Raises BadInput or DiskFull where the file cannot be written."""
        fields = {name: key if name == "key" else getattr(completion, name) for name in _FIELDS}
        with self._lock:
            if key in self._held:
                return
            try:
                with self.path.open("ab") as file:
                    file.write(self._apart + canonical_json(fields))
            except OSError as error:
                raise self._unusable(error) from error
            self._apart = b""
            self._held[key] = completion

    def _read(self, where: str, line: bytes) -> None:
        try:
            fields = strict_json(line)
        except ValueError:
            if line.startswith(_BEGINNING) or _BEGINNING.startswith(line):
                return  # cut off
            fields = None
        if not isinstance(fields, dict) or {name: type(value) for name, value in fields.items()} != _FIELDS:
            raise BadInput(f"{where}: is no kept answer; name a file that evaluate --answers made, or one that is new")
        key = fields.pop("key")
        self._held.setdefault(key, Completion(finish_reason="stop", **fields))

    def _unusable(self, error: OSError) -> IndexmillError:
        bad = BadInput(f"{self.path}: answers cannot be kept there: {error.strerror or error}")
        return DiskFull.of(error, self.path) or bad


class CachedLlm(LlmWrapper[LLM]):
    """A model that is asked only what is not kept; see ``LLM``.

    The same request twice at a time is sent once. An answer that cannot be used is not kept; one that was repaired is
    the answer to the request itself.
    """

    def __init__(self, llm: LLM, kept: AnswerCache) -> None:
        super().__init__(llm)
        self._kept = kept
        self._asked: dict[tuple[int, str], asyncio.Event] = {}

    async def complete(self, request: Request, correction: tuple[str, str] | None = None) -> Completion:
        """See ``LLM``; tokens of an answer that is kept are those that were billed for it then."""
        key = key_of(self.fingerprint, request)
        place = (id(asyncio.get_running_loop()), key)
        while place in self._asked:
            await self._asked[place].wait()
        found = self._kept.take(key)
        if found is not None:
            return found
        self._asked[place] = asyncio.Event()
        try:
            completion = await self._llm.complete(request, correction)
            try:
                read_answer(completion, request.schema)
            except BadAnswer:
                pass
            else:
                self._kept.keep(key, completion)
            return completion
        finally:
            self._asked.pop(place).set()
