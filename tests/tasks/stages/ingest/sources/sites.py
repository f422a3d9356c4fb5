"""A web site of this machine that answers as a test says, and remembers what it was asked."""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer


@dataclass(frozen=True)
class Answer:
    """What the site answers. body: its pieces are sent one by one, without a length; cut: the connection ends then."""

    status: int = 200
    body: bytes | Callable[[], Iterator[bytes]] = b""
    headers: Mapping[str, str] = field(default_factory=dict)
    cut: bool = False


@dataclass
class Asked:
    """A request: its path, its headers in lower case, when it came and when its answer ended."""

    path: str
    headers: Mapping[str, str]
    began: float
    ended: float


class Site:
    """Answers by path: one, or several in turn of which the last stays. A validator that fits is answered by 304."""

    def __init__(self) -> None:
        self.answers: dict[str, Answer | list[Answer]] = {}
        self.asked: list[Asked] = []
        site = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def log_message(self, *_: object) -> None:
                pass

            def do_GET(self) -> None:
                began = time.monotonic()
                headers = {name.lower(): value for name, value in self.headers.items()}
                asked = Asked(self.path, headers, began, began)
                site.asked.append(asked)  # before whoever asked can know the answer
                with contextlib.suppress(OSError):
                    site._answer(self)
                asked.ended = time.monotonic()

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self._server.daemon_threads = True
        self.host = f"127.0.0.1:{self._server.server_port}"
        self.url = f"http://{self.host}"

    def page(self, path: str, body: bytes | str, content_type: str = "text/html", **headers: str) -> None:
        """Let a page be there; headers: with _ for -."""
        data = body.encode() if isinstance(body, str) else body
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        self.answers[path] = Answer(200, data, {"Content-Type": content_type, **named})

    def paths(self) -> list[str]:
        """What was asked for, but for robots.txt."""
        return [one.path for one in self.asked if one.path != "/robots.txt"]

    def _answer(self, request: BaseHTTPRequestHandler) -> None:
        answer = self.answers.get(request.path, Answer(404))
        if isinstance(answer, list):
            answer = answer.pop(0) if len(answer) > 1 else answer[0]
        etag, modified = answer.headers.get("ETag"), answer.headers.get("Last-Modified")
        if (etag and request.headers.get("If-None-Match") == etag) or (
            not etag and modified and request.headers.get("If-Modified-Since") == modified
        ):
            request.send_response_only(304)
            request.end_headers()
            return
        request.send_response_only(answer.status)
        for name, value in answer.headers.items():
            request.send_header(name, value)
        if isinstance(answer.body, bytes):
            if "Content-Length" not in answer.headers:
                request.send_header("Content-Length", str(len(answer.body)))
            request.end_headers()
            request.wfile.write(answer.body)
        else:
            request.send_header("Connection", "close")
            request.end_headers()
            request.close_connection = True
            for piece in answer.body():
                request.wfile.write(piece)
        if answer.cut:
            request.close_connection = True

    def __enter__(self) -> Site:
        threading.Thread(target=self._server.serve_forever, args=(0.01,), daemon=True).start()
        return self

    def __exit__(self, *_: object) -> None:
        self._server.shutdown()
        self._server.server_close()


@contextlib.contextmanager
def site() -> Iterator[Site]:
    """A site for the length of a block."""
    with Site() as made:
        yield made
