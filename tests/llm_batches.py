"""Files and batches of the endpoint in ``tests.llm_server``: /v1/files and /v1/batches, worked off when looked at.

    server.batches.plan = Plan(looks=3, fates={1: "expired"}, lag=2, calls={("create", 1): "drop-after"})

`server.batches.wrong` says what a client must never do: a request in two batches that may both be paid for.
"""

from __future__ import annotations

import json
import random
import re
import time
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from email.parser import BytesParser
from email.policy import HTTP
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from tests.llm_server import LlmServer, Received, Reply

_PATH = re.compile(r"/v1/(files|batches)(?:/([\w-]+))?(?:/(content|cancel))?")
_ENDED = frozenset({"completed", "failed", "expired", "cancelled"})
_CALLS = {
    ("POST", "files", False, None): "upload",
    ("GET", "files", False, None): "list-files",
    ("GET", "files", True, None): "file",
    ("GET", "files", True, "content"): "content",
    ("DELETE", "files", True, None): "delete",
    ("POST", "batches", False, None): "create",
    ("GET", "batches", False, None): "list",
    ("GET", "batches", True, None): "retrieve",
    ("POST", "batches", True, "cancel"): "cancel",
}


@dataclass(frozen=True)
class Plan:
    """How batches go, and what goes wrong.

    looks: how often a batch is polled before it ends. fates: by the batch's number from 1, how it ends: completed,
    expired or cancelled (every second request answered), empty (expired, none answered), invalid or queue (failed).
    outcomes: from a custom_id to what becomes of a request in a batch that is worked off: error (a line in the error
    file), missing (no line at all), or a fault of ``LlmServer.complete``; None for a good answer. lag: so many listings
    leave out what is new. page: most entries of a listing. noise: lines that nobody asked for. queue: so many requests
    in batches at work are too many. calls: by the name of a call (``_CALLS``) and its number from 1: 429, 500, drop
    (before it has an effect), drop-after, 500-after, page (a proxy's, with a status of 200), or late-n: as drop, and it
    has its effect n calls later.
    """

    looks: int = 1
    fates: Mapping[int, str] = field(default_factory=dict)
    outcomes: Callable[[str], str | None] = lambda _: None
    lag: int = 0
    page: int = 100
    noise: bool = False
    queue: int | None = None
    calls: Mapping[tuple[str, int], str] = field(default_factory=dict)


@dataclass
class Batch:
    """One batch as the protocol shows it, the requests in it, and those that were answered."""

    shown: dict[str, Any]
    looks_left: int
    hidden: int
    lines: list[dict[str, Any]]
    answered: set[str] = field(default_factory=set)

    @property
    def asked(self) -> set[str]:
        """The custom_ids."""
        return {line["custom_id"] for line in self.lines}

    @property
    def ended(self) -> bool:
        """Whether nothing more becomes of it."""
        return self.shown["status"] in _ENDED


@dataclass
class File:
    """One file as the protocol shows it."""

    shown: dict[str, Any]
    data: bytes
    hidden: int = 0


@dataclass
class Batches:
    """What has been uploaded and submitted."""

    server: LlmServer
    plan: Plan = field(default_factory=Plan)
    files: dict[str, File] = field(default_factory=dict)
    batches: dict[str, Batch] = field(default_factory=dict)
    wrong: list[str] = field(default_factory=list)
    calls: Counter[str] = field(default_factory=Counter)
    _late: list[tuple[int, dict[str, Any]]] = field(default_factory=list)
    _files: int = 0

    def reply(self, received: Received) -> Reply | None:
        """The reply to a request below /v1/files and /v1/batches; None where the socket is dropped."""
        from tests.llm_server import Reply

        found = _PATH.fullmatch(received.path)
        if found is None:
            return Reply.error(404, f"no such path: {received.path}")
        kind, name, action = found.groups()
        call = _CALLS.get((received.method, kind, name is not None, action))
        if call is None:
            return Reply.error(405, f"{received.method} {received.path}")
        with self.server.lock:
            self.calls[call] += 1
            self._come_late()
            fault = self.plan.calls.get((call, self.calls[call]), "")
            if fault.startswith("late-"):
                self._late.append((int(fault.removeprefix("late-")), received.json()))
                return None
            if fault == "page":
                return Reply(200, b"<html>Please sign in</html>", {"content-type": "text/html"})
            if fault and not fault.endswith("-after"):
                return None if fault == "drop" else Reply.error(int(fault), f"status {fault}")
            reply = self._reply(call, received, name)
            if fault:
                return None if fault == "drop-after" else Reply.error(int(fault[:3]), f"status {fault}")
            return reply

    def of_ids(self, custom_id: str) -> list[Batch]:
        """The batches that a request was in."""
        return [batch for batch in self.batches.values() if custom_id in batch.asked]

    def _reply(self, call: str, received: Received, name: str | None) -> Reply:
        from tests.llm_server import Reply

        if name is not None and name not in (self.files if call in ("file", "content", "delete") else self.batches):
            return Reply.error(404, f"no such object: {name}")
        match call:
            case "upload":
                return Reply.of(200, self._upload(received))
            case "list-files":
                wanted = received.query.get("purpose")
                return self._listed(received, [one for one in self.files.values() if one.shown["purpose"] == wanted])
            case "list":
                return self._listed(received, list(self.batches.values()))
            case "create":
                return self._submit(received.json())
        assert name is not None
        match call:
            case "content":
                return Reply(200, self.files[name].data, {"content-type": "application/octet-stream"})
            case "file":
                return Reply.of(200, self.files[name].shown)
            case "delete":
                del self.files[name]
                return Reply.of(200, {"id": name, "object": "file", "deleted": True})
            case "cancel":
                batch = self.batches[name]
                if not batch.ended:
                    self._end(batch, "cancelled")
                return Reply.of(200, batch.shown)
        return Reply.of(200, self._looked(self.batches[name]))

    def _come_late(self) -> None:
        """Requests whose sender was cut off long ago have their effect now."""
        waiting = [(left - 1, asked) for left, asked in self._late]
        self._late = [(left, asked) for left, asked in waiting if left > 0]
        for left, asked in waiting:
            if left <= 0:
                self._submit(asked)

    def _keep_file(self, data: bytes, filename: str, purpose: str) -> dict[str, Any]:
        self._files += 1
        shown = {
            "id": f"file-{self._files:04d}",
            "object": "file",
            "bytes": len(data),
            "created_at": int(time.time()),
            "filename": filename,
            "purpose": purpose,
            "status": "processed",
        }
        self.files[shown["id"]] = File(shown, data, self.plan.lag)
        return shown

    def _upload(self, received: Received) -> dict[str, Any]:
        head = f"content-type: {received.headers['content-type']}\r\n\r\n".encode()
        form = {}
        for part in BytesParser(policy=HTTP).parsebytes(head + received.body).iter_parts():
            form[part.get_param("name", header="content-disposition")] = part
        data = form["file"].get_payload(decode=True)
        return self._keep_file(data, form["file"].get_filename() or "file", form["purpose"].get_content().strip())

    def _submit(self, asked: dict[str, Any]) -> Reply:
        from tests.llm_server import Reply

        if asked["input_file_id"] not in self.files:
            return Reply.error(400, f"No such File object: {asked['input_file_id']}", "invalid_request_error")
        name = f"batch_{len(self.batches) + 1:04d}"
        lines = [json.loads(line) for line in self.files[asked["input_file_id"]].data.splitlines()]
        shown = {
            "id": name,
            "object": "batch",
            "endpoint": asked["endpoint"],
            "input_file_id": asked["input_file_id"],
            "completion_window": asked["completion_window"],
            "status": "validating",
            "created_at": int(time.time()),
            "metadata": asked.get("metadata"),
            "output_file_id": None,
            "error_file_id": None,
            "request_counts": {"total": len(lines), "completed": 0, "failed": 0},
        }
        batch = Batch(dict(shown), self.plan.looks, self.plan.lag, lines)
        for before in self.batches.values():
            both = batch.asked & (before.answered if before.ended else before.asked)
            if both:
                self.wrong.append(f"{len(both)} requests of {name} are in {before.shown['id']}, too")
        at_work = sum(len(one.lines) for one in self.batches.values() if not one.ended)
        self.batches[name] = batch
        if self.plan.queue is not None and at_work + len(lines) > self.plan.queue:
            self._end(batch, "queue")
        return Reply.of(200, shown)

    def _looked(self, batch: Batch) -> dict[str, Any]:
        if not batch.ended:
            batch.looks_left -= 1
            batch.shown["status"] = "in_progress"
            if batch.looks_left <= 0:
                self._end(batch, self.plan.fates.get(int(batch.shown["id"][-4:]), "completed"))
        return batch.shown

    def _end(self, batch: Batch, fate: str) -> None:
        if fate in ("invalid", "queue"):
            code, message = {
                "invalid": ("invalid_json_line", "This line is not parseable as valid JSON."),
                "queue": ("token_limit_exceeded", "Enqueued token limit reached for some-model. Limit: 9 tokens."),
            }[fate]
            error = {"code": code, "message": message, "line": 1, "param": None}
            batch.shown |= {"status": "failed", "errors": {"object": "list", "data": [error]}}
            return
        good, bad = [], []
        for number, asked in enumerate(batch.lines):
            if fate == "empty" or (fate in ("expired", "cancelled") and number % 2):
                bad.append(_line(asked, None, {"code": "batch_expired", "message": "not in time"}))
                continue
            outcome = self.plan.outcomes(asked["custom_id"])
            if outcome == "error":
                bad.append(_line(asked, {"status_code": 500, "body": {"error": {"message": "some error"}}}, None))
            elif outcome != "missing":
                good.append(self._answered(batch, asked, outcome))
        random.Random(len(good)).shuffle(good)  # noqa: S311 - test data
        if self.plan.noise and good:
            stranger = _line({"custom_id": "f" * 64}, json.loads(good[0])["response"], None)
            good += [good[0], stranger, '{"custom_id": 7}', "[]", '{"cut off']
        done = len(batch.answered)
        batch.shown["request_counts"] = {"total": len(batch.lines), "completed": done, "failed": len(bad)}
        batch.shown["status"] = "expired" if fate == "empty" else fate
        for lines, which in ((good, "output"), (bad, "error")):
            if lines:
                data = "\n".join(lines).encode()
                name = f"{batch.shown['id']}_{which}.jsonl"
                batch.shown[f"{which}_file_id"] = self._keep_file(data, name, "batch_output")["id"]

    def _answered(self, batch: Batch, asked: dict[str, Any], fault: str | None) -> str:
        from tests.llm_server import SPOILED, prompt_digest

        body, usage = self.server.complete(asked["body"], fault)
        self.server.charge(prompt_digest(asked["body"]), usage, spoiled=fault in SPOILED)
        if fault not in SPOILED:
            batch.answered.add(asked["custom_id"])
        return _line(asked, {"status_code": 200, "request_id": "r", "body": body}, None)

    def _listed(self, received: Received, entries: list[Batch] | list[File]) -> Reply:
        """One page, the newest first; what is new is left out for a while."""
        from tests.llm_server import Reply

        after = received.query.get("after")
        seen = [one for one in reversed(entries) if one.hidden <= 0]
        if after is None:
            for one in entries:
                one.hidden -= 1
        ids = [one.shown["id"] for one in seen]
        start = ids.index(after) + 1 if after in ids else 0
        size = min(self.plan.page, int(received.query.get("limit", 20)))
        data = [one.shown for one in seen[start : start + size]]
        edges = {"first_id": data[0]["id"], "last_id": data[-1]["id"]} if data else {"first_id": None, "last_id": None}
        return Reply.of(200, {"object": "list", "data": data, "has_more": start + size < len(ids), **edges})


def _line(asked: Mapping[str, Any], response: Any, error: Any) -> str:
    custom_id = asked["custom_id"]
    return json.dumps({"id": f"batch_req_{custom_id}", "custom_id": custom_id, "response": response, "error": error})
