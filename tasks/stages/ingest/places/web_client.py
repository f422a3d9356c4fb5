"""Polite requests to web sites: one at a time to a host, as robots.txt asks, with patience, and to public places only.

Turns are taken by locks on files of the run's scratch folder, so that the processes of this machine share them.
Redirects are followed here: each target must be http or https, and, unless it is the host that was asked, an address of
the public internet. Otherwise a page could have files of this machine, or of a network behind it, published.
"""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import ipaddress
import socket
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar
from urllib.parse import quote, urljoin, urlsplit, urlunsplit

from indexmill.extras import not_installed
from indexmill.models.http_failures import retry_after
from tasks.stages.ingest.places.names import shown
from tasks.stages.ingest.places.place import PlaceError
from tasks.stages.ingest.places.robots import ALLOW_ALL, LARGEST, Robots, parse_robots

if TYPE_CHECKING:
    import httpx2

T = TypeVar("T")

_AGENT = "indexmill"
_HOPS = 5
"""Redirects that are followed, as RFC 9309 has it for robots.txt."""
_ATTEMPTS = 5
_FIRST_WAIT = 1.0
_LONGEST_WAIT = 120.0
"""The most seconds that a site may ask to wait before the next request."""
_LONGEST_DELAY = 60.0
_LONGEST_BODY = 600.0
"""Seconds in which a body has to arrive."""
_MOVED = frozenset({301, 302, 303, 307, 308})
_BUSY = frozenset({408, 425, 429, 500, 502, 503, 504})
_ENCODINGS = frozenset({"", "identity", "gzip", "x-gzip", "deflate"})
"""Others, and several at once, unpack to a million times their size within one piece of the answer."""
_PORTS = {"http": 80, "https": 443}


class DisallowedError(Exception):
    """robots.txt asks not to read a page."""


class RefusedError(Exception):
    """A page alone cannot be read; the message says why."""


class _BusyError(Exception):
    """The site may answer later: after so many seconds, if it says so."""

    def __init__(self, why: str, after: float | None = None) -> None:
        super().__init__(why)
        self.after = after


class WebClient:
    """Requests of one place. Safe to use from many threads."""

    def __init__(self, delay: float, contact: str, scratch: Path) -> None:
        try:
            import httpx2
        except ImportError as error:
            raise not_installed("reading pages of the web", "httpx2", error) from error
        from indexmill import __version__
        from indexmill.models import http_logs

        http_logs.silence()
        self._delay, self._turns = delay, scratch / "web-turns"
        self._turns.mkdir(parents=True, exist_ok=True)
        self._robots: dict[str, Robots] = {}
        self._robots_lock = threading.Lock()
        self._direct = not urllib.request.getproxies()
        self._client = httpx2.Client(
            headers={
                "User-Agent": f"{_AGENT}/{__version__}" + (f" (+{contact})" if contact else ""),
                "Accept": "*/*",
                "Accept-Encoding": "gzip, deflate",
            },
            timeout=httpx2.Timeout(30.0, connect=10.0),
            follow_redirects=False,
        )

    def close(self) -> None:
        """Close its connections."""
        self._client.close()

    def get(
        self,
        url: str,
        receive: Callable[[httpx2.Response], T],
        headers: Mapping[str, str] | None = None,
        *,
        robots: bool = True,
    ) -> T:
        """What `receive` makes of the answer at the end of the redirects; it may be called again after a failure.

        Raises DisallowedError, RefusedError, and PlaceError where the site fails for longer than a while.
        """
        asked = url
        for _ in range(_HOPS + 1):
            found = self.robots(url) if robots else ALLOW_ALL
            if not found.allows(url):
                raise DisallowedError(url)
            answer = self._patiently(url, asked, receive, headers or {}, max(self._delay, found.delay))
            if not isinstance(answer, _Moved):
                return answer
            url = self._target(asked, url, answer.location)
        raise RefusedError(f"{shown(asked)} is redirected more than {_HOPS} times")

    def robots(self, url: str) -> Robots:
        """The rules of a page's site; raises PlaceError where the site does not say them."""
        site = site_of(url)
        with self._robots_lock:
            known = self._robots.get(site)
        if known is None:
            known = self._ask_robots(site)
            with self._robots_lock:
                self._robots[site] = known
        return known

    def _ask_robots(self, site: str) -> Robots:
        def receive(response: httpx2.Response) -> Robots:
            if response.status_code != 200:  # 4xx: "the crawler MAY access any resources"
                return ALLOW_ALL
            return parse_robots(body(response, LARGEST, cut=True).decode("utf-8", "replace"), _AGENT)

        try:
            found = self.get(f"{site}/robots.txt", receive, robots=False)
        except RefusedError:
            return ALLOW_ALL
        except PlaceError as error:
            raise PlaceError(
                f"{error}. While a site does not say what is in its robots.txt, nothing may be read from it (RFC 9309)"
            ) from error
        if found.delay > _LONGEST_DELAY:
            raise PlaceError(
                f"{site}/robots.txt asks for {found.delay:g} seconds between two requests, more than the "
                f"{_LONGEST_DELAY:g} that are waited for: leave the site out, or ask it"
            )
        return found

    def _patiently(
        self, url: str, asked: str, receive: Callable[[httpx2.Response], T], headers: Mapping[str, str], delay: float
    ) -> T | _Moved:
        import httpx2

        wait = _FIRST_WAIT
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return self._once(url, asked, receive, headers, delay)
            except (_BusyError, httpx2.TransportError) as error:
                said = str(error) if isinstance(error, _BusyError) else f"does not answer ({_why(error)})"
                after = error.after if isinstance(error, _BusyError) else None
                if after is not None and after > _LONGEST_WAIT:
                    raise PlaceError(
                        f"{shown(url)} {said}, and asks to wait for {after:,.0f} s: build later"
                    ) from error
                if attempt == _ATTEMPTS:
                    raise PlaceError(
                        f"{shown(url)} {said}, {_ATTEMPTS} times: check the URL and the network, or build later; a "
                        "page that fails is not taken for one that is gone"
                    ) from error
                time.sleep(wait if after is None else after)
                wait *= 2
            except httpx2.DecodingError as error:
                raise RefusedError(f"{shown(url)} cannot be unpacked") from error
            except (httpx2.InvalidURL, httpx2.UnsupportedProtocol, UnicodeError) as error:
                raise RefusedError(f"{shown(url)} is no URL that can be asked for") from error
        raise PlaceError(f"{shown(url)} was not asked for")

    def _once(
        self, url: str, asked: str, receive: Callable[[httpx2.Response], T], headers: Mapping[str, str], delay: float
    ) -> T | _Moved:
        with self._turn(url, delay):
            self._client.cookies.clear()  # what a page says must not depend on which were read before
            with self._client.stream("GET", url, headers=dict(headers)) as response:
                if response.status_code in _BUSY:
                    after = retry_after(response.headers, time.time())
                    raise _BusyError(f"answers {response.status_code}", after)
                if response.status_code in _MOVED and (location := response.headers.get("location")):
                    return _Moved(location)
                if self._direct and not _same_host(asked, url):
                    _check_peer(response, url)
                return receive(response)

    @contextlib.contextmanager
    def _turn(self, url: str, delay: float) -> Iterator[None]:
        """Wait until this host has had its rest from every process of this machine."""
        name = hashlib.sha256(site_of(url).encode()).hexdigest()[:32]
        with (self._turns / name).open("a+") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            with contextlib.suppress(ValueError):
                time.sleep(min(max(0.0, float(file.read()) + delay - time.monotonic()), delay))
            try:
                yield
            finally:
                file.truncate(0)
                file.write(repr(time.monotonic()))
                file.flush()

    def _target(self, asked: str, url: str, location: str) -> str:
        try:
            target = normal_url(urljoin(url, location))
        except ValueError:
            target = None
        if target is None:
            raise RefusedError(f"{shown(asked)} is redirected to {shown(location)}, which is not of the web")
        if not _same_host(asked, target) and not is_public(urlsplit(target).hostname or ""):
            raise RefusedError(
                f"{shown(asked)} is redirected to {shown(target)}, which is not a public address: give that URL itself"
            )
        return target


class _Moved:
    def __init__(self, location: str) -> None:
        self.location = location


def body(response: httpx2.Response, most: int, *, cut: bool = False) -> bytes:
    """The body of an answer, which may have so many bytes; a longer one is cut, or refused."""
    found = bytearray()
    for chunk in chunks(response):
        found += chunk
        if len(found) > most:
            if cut:
                return bytes(found[:most])
            raise RefusedError(f"{shown(str(response.url))} has more than {most:,} bytes")
    return bytes(found)


def chunks(response: httpx2.Response) -> Iterator[bytes]:
    """The unpacked pieces of a body; raises RefusedError for one that takes too long, or is packed oddly."""
    packed = response.headers.get("content-encoding", "").strip().lower()
    if packed not in _ENCODINGS:
        raise RefusedError(f"{shown(str(response.url))} is sent as {shown(packed)}, which was not asked for")
    until = time.monotonic() + _LONGEST_BODY
    for chunk in response.iter_bytes():
        if time.monotonic() > until:
            raise RefusedError(f"{shown(str(response.url))} takes longer than {_LONGEST_BODY:g} s to arrive")
        yield chunk


def normal_url(url: str) -> str | None:
    """A URL of the web in one spelling, without its fragment; None for any other, and for one with credentials."""
    try:
        split = urlsplit(url.strip())
        port = split.port
        host = (split.hostname or "").encode("idna").decode("ascii").lower() if split.hostname else ""
    except (ValueError, UnicodeError):
        return None
    if split.scheme not in _PORTS or not host or "@" in split.netloc:
        return None
    at = f"[{host}]" if ":" in host else host
    at += f":{port}" if port not in (None, _PORTS[split.scheme]) else ""
    path = quote(split.path or "/", safe="/%:@!$&'()*+,;=~")
    query = quote(split.query, safe="/%:@!$&'()*+,;=~?")
    return urlunsplit((split.scheme, at, path, query, ""))


def site_of(url: str) -> str:
    """Scheme, host and port."""
    split = urlsplit(url)
    return f"{split.scheme}://{split.netloc}"


def is_public(host: str) -> bool:
    """True if a host has addresses of the public internet alone."""
    try:
        found = {str(one[4][0]) for one in socket.getaddrinfo(host, None, proto=socket.IPPROTO_TCP)}
    except (OSError, UnicodeError):
        return False
    return bool(found) and all(_is_global(one) for one in found)


def _is_global(address: str) -> bool:
    try:
        found = ipaddress.ip_address(address.partition("%")[0])
    except ValueError:
        return False
    inner = getattr(found, "ipv4_mapped", None) or getattr(found, "sixtofour", None)
    return found.is_global and not found.is_multicast and (inner is None or inner.is_global)


def _check_peer(response: httpx2.Response, url: str) -> None:
    """Refuse an answer from an address that is not public: a name may lead elsewhere when it is looked up again."""
    stream = response.extensions.get("network_stream")
    peer = stream.get_extra_info("server_addr") if stream is not None else None
    if not peer or not _is_global(str(peer[0])):
        raise RefusedError(f"a redirect led to {shown(url)}, which is not a public address")


def _same_host(one: str, other: str) -> bool:
    """True for the same host and port, or the default ports of http and https at one host."""
    first, second = urlsplit(one), urlsplit(other)
    if first.hostname != second.hostname:
        return False
    ports = {first.port or _PORTS[first.scheme], second.port or _PORTS[second.scheme]}
    return len(ports) == 1 or ports <= set(_PORTS.values())


def _why(error: Exception) -> str:
    said = " ".join(str(error).split())[:200]
    return f"{type(error).__name__}: {said}" if said else type(error).__name__
