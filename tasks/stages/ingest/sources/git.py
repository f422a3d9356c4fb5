"""The files of a commit in a git repository, read by the program git.

A local folder is read directly. A URL is fetched into the run's scratch folder: first the commit without its history
and files; then, in one request, the files that changed since the previous version. A file's token is the id of its
blob, by which the file is read, so that every process reads the listed commit.

The repository is not trusted. No hook or program from its configuration is run: git is called only with commands that
read. For a local folder git may not use any transport; for a URL, only the `_TRANSPORTS`. Symbolic links, submodules
and hidden names are not listed. A Git LFS pointer is rejected, since the file itself is not in git.

The git program is used rather than dulwich or pygit2: it supports every transport and credential helper that users have
set up, fetches without files, and its licence does not affect the caller.
"""

from __future__ import annotations

import contextlib
import hashlib
import io
import os
import re
import shutil
import subprocess
import tempfile
import threading
import unicodedata
import weakref
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import IO, BinaryIO, cast
from urllib.parse import urlsplit

import tenacity

from indexmill.text.printable import is_utf8
from schemas.sources import GitSettings
from tasks.stages.ingest.globs import is_chosen
from tasks.stages.ingest.source_files import kind_of
from tasks.stages.ingest.sources.file_names import Skipped, is_plain, shown, why_hidden
from tasks.stages.ingest.sources.source_interface import FileEntry, SourceError
from tasks.stages.ingest.sources.temporary import filled

_TRANSPORTS = ("file", "git", "http", "https", "ssh")
_SCP = re.compile(r"(?:[\w.-]+@)?[\w.-]+:(?!:)(?!//).+")
_REMOTE_REF = re.compile(r"[^\x00-\x20\x7f~^:?*\[\\+-][^\x00-\x20\x7f~^:?*\[\\]*")
_ID = re.compile(r"[0-9a-f]{40}|[0-9a-f]{64}")
_POINTER = b"version https://git-lfs.github.com/spec/v1\n"
_LARGEST_POINTER = 1024
_CHUNK = 1 << 20
_ATTEMPTS = 4
_FIRST_WAIT = 0.5
_MAY_PASS = re.compile(
    r"timed? ?out|could not resolve host|connection (reset|refused|closed)|early eof|rpc failed|hung up"
    r"|unexpected disconnect|returned error: (429|5\d\d)|temporary failure",
    re.IGNORECASE,
)
_SECRET = re.compile(r"(\w+://)[^/\s@]*@")
_OF_A_REPOSITORY = (
    "GIT_ALTERNATE_OBJECT_DIRECTORIES",
    "GIT_COMMON_DIR",
    "GIT_DIR",
    "GIT_GRAFT_FILE",
    "GIT_INDEX_FILE",
    "GIT_NAMESPACE",
    "GIT_OBJECT_DIRECTORY",
    "GIT_REPLACE_REF_BASE",
    "GIT_SHALLOW_FILE",
    "GIT_WORK_TREE",
)
"""Variables, set in hooks for example, that make git use another repository than its arguments name."""

_CONFIGURATION = (
    "core.bigFileThreshold=16m",  # larger files are streamed
    "core.fsmonitor=false",
    "core.hooksPath=/dev/null",
    "fetch.recurseSubmodules=false",
    "fetch.writeCommitGraph=false",
    "gc.auto=0",
    "http.lowSpeedLimit=1000",
    "http.lowSpeedTime=60",
    "maintenance.auto=false",
    "protocol.ext.allow=never",
    "submodule.recurse=false",
)


@dataclass(frozen=True, slots=True)
class _File:
    name: str
    id: str
    exact: bool  # whether the path is in NFC
    size: int | None


class GitSource:
    """The files of a commit."""

    def __init__(self, settings: GitSettings, scratch: Path) -> None:
        """Raises SourceError for an invalid repository or ref."""
        repository, ref = settings.repository, settings.ref
        self._settings, self._scratch = settings, scratch
        self._url = _checked_url(repository)
        self._ref = ref
        self._shown = _SECRET.sub(r"\1", repository)
        if not ref or ref.startswith("-") or not ref.isprintable():
            raise SourceError(f"{shown(ref)} is not a ref of {self._shown}: give a branch, a tag or a commit")
        if self._url is not None and (not _REMOTE_REF.fullmatch(ref) or ".." in ref or "@{" in ref):
            raise SourceError(
                f"{shown(ref)} is not a ref that can be fetched: give a branch, a tag or a full commit id"
            )
        name = hashlib.sha256(repository.encode("utf-8", "surrogateescape")).hexdigest()[:24]
        self._folder = scratch / f"git-{name}" if self._url is not None else Path(repository).expanduser().absolute()
        self._reader: _Reader | None = None
        self._lock = threading.Lock()
        self.warnings: list[str] = []

    def list(self, tokens: Mapping[str, str]) -> Iterable[FileEntry]:
        """List every file of the commit, sorted by name. Fetches all changed files in one request."""
        self.warnings = []
        commit = self._resolved()
        skipped = Skipped()
        files = self._files(commit, skipped)
        if self._url is not None:
            files = self._prefetched(files, tokens)
        self.warnings += skipped.sentences()
        return [FileEntry(file.name, file.size, file.id) for file in files]

    def read(self, name: str, token: str) -> BinaryIO:
        """Read the blob of an entry into an unlinked temporary file."""
        if not _ID.fullmatch(token):
            raise OSError(f"{shown(name)} was not listed: {shown(token)} is not the id of a blob")
        with self._lock:
            if self._reader is None or not self._reader.usable:
                if self._reader is not None:
                    self._reader.close()
                self._make_repository()
                command = self._command("cat-file", "--batch")
                self._reader = _Reader(command, self._environment(), self._shown, self._scratch)
            return self._reader.read(name, token)

    def _resolved(self) -> str:
        self._make_repository()
        if self._url is None:
            self._check_repository()
            revision = self._ref
        else:
            revision = self._fetched()
        done = self._run("rev-parse", "--verify", "--quiet", "--end-of-options", f"{revision}^{{commit}}")
        if done.returncode:
            raise SourceError(
                f"{self._shown} has no branch, tag or commit {shown(self._ref)}: check `ref`"
                + (", or fetch it there" if self._url is None else "")
            )
        return done.stdout.decode("ascii").strip()

    def _check_repository(self) -> None:
        if not self._folder.is_dir():
            raise SourceError(f"there is no folder {self._shown}: give the folder of a repository, or a URL")
        done = self._run("rev-parse", "--git-dir")
        if done.returncode:
            raise SourceError(
                f"{self._shown} is not a git repository ({_message(done.stderr)}): give its top folder, or a URL"
            )

    def _make_repository(self) -> None:
        """Create an empty repository with the URL as remote, unless another process has already created it."""
        if self._url is None or self._folder.exists():
            return
        self._folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=self._folder.parent, prefix="git-") as temporary:
            created = Path(temporary) / "repository"
            words = ["init", "--quiet", "--bare", "--template=", str(created)]
            done = _call([*_git(), *words], self._environment(), self._shown)
            settings = {
                "core.repositoryFormatVersion": "1",
                "extensions.partialClone": "origin",
                "remote.origin.url": self._url,
                "remote.origin.promisor": "true",
                "remote.origin.partialCloneFilter": "blob:none",
            }
            for key, value in settings.items():
                if not done.returncode:
                    words = [f"--git-dir={created}", "config", key, value]
                    done = _call([*_git(), *words], self._environment(), self._shown)
            if done.returncode:
                raise SourceError(f"no repository can be created in {self._folder.parent}: {_message(done.stderr)}")
            try:
                created.rename(self._folder)
            except OSError:
                if not self._folder.exists():
                    raise

    def _fetched(self) -> str:
        """Fetch the ref; return the revision to read: FETCH_HEAD, or the ref if all refs were fetched."""
        fetch = ("fetch", "--quiet", "--no-tags", "--filter=blob:none")
        done = self._fetch(*fetch, "--depth=1", "origin", f"{self._ref}:")  # without the colon, `tag` is a keyword
        if not done.returncode:
            return "FETCH_HEAD"
        message = done.stderr.decode("utf-8", "replace")
        missing = "couldn't find remote ref" in message or "not our ref" in message or "unadvertised object" in message
        if missing and re.fullmatch(r"[0-9a-f]{4,64}", self._ref):
            # A server may refuse a commit by its id, and always refuses an abbreviated id.
            done = self._fetch(*fetch, "origin", "+refs/heads/*:refs/heads/*", "+refs/tags/*:refs/tags/*")
            if not done.returncode:
                return self._ref
        elif missing:
            raise SourceError(f"{self._shown} has no branch or tag {shown(self._ref)}: check `ref`")
        raise SourceError(
            f"{self._shown} cannot be fetched: {_message(done.stderr)}. Check the URL, the network, and the "
            "credentials: git takes them from its credential helper or from an SSH agent, and cannot ask for them here"
        )

    def _fetch(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        """Fetch, with retries if the network fails."""
        attempts = tenacity.Retrying(
            retry=tenacity.retry_if_result(
                lambda done: bool(done.returncode and _MAY_PASS.search(done.stderr.decode("utf-8", "replace")))
            ),
            wait=tenacity.wait_random_exponential(multiplier=_FIRST_WAIT, max=15),
            stop=tenacity.stop_after_attempt(_ATTEMPTS),
            retry_error_callback=lambda state: state.outcome.result() if state.outcome else None,
        )
        return attempts(self._run, *words, stdin=stdin)

    def _files(self, commit: str, skipped: Skipped) -> Sequence[_File]:
        # If asked for sizes, git would fetch the files of a partial clone one by one.
        sizes = ("-l",) if self._url is None else ()
        done = self._run("ls-tree", "-r", "-z", *sizes, "--full-tree", commit)
        if done.returncode:
            message = _message(done.stderr)
            raise SourceError(f"{self._shown} cannot be listed at {commit}: {message}; run `git fsck` there")
        by_name: dict[str, _File] = {}
        for line in done.stdout.split(b"\0")[:-1]:
            described, _, path = line.partition(b"\t")
            mode, _, identity, *size = described.split()
            name = path.decode("utf-8", "surrogateescape")
            if why_hidden(name):
                continue
            if mode == b"120000":
                skipped.add("they are symbolic links", name)
            elif mode == b"160000":
                skipped.add("they are submodules, which must be separate sources", name)
            elif not is_plain(name):
                skipped.add("their names have control characters", name)
            else:
                normal = unicodedata.normalize("NFC", name)
                file = _File(
                    normal,
                    identity.decode("ascii"),
                    normal == name,
                    int(size[0]) if size and size[0].isdigit() else None,
                )
                first = by_name.setdefault(normal, file)
                if first is not file:  # the first in git's byte order wins
                    skipped.add("another file has the same name except for Unicode forms", normal)
                    if file.exact:
                        by_name[normal] = file
        return sorted(by_name.values(), key=lambda file: file.name)

    def _prefetched(self, files: Sequence[_File], tokens: Mapping[str, str]) -> Sequence[_File]:
        """Fetch the changed files in one request. Returns all files, with the sizes of the fetched files."""
        globs = (self._settings.include, self._settings.exclude)
        changed = (file for file in files if tokens.get(file.name) != file.id)
        readable = (
            file for file in changed if is_utf8(file.name) and kind_of(file.name, self._settings.formats) is not None
        )
        blobs = sorted({file.id for file in readable if is_chosen(file.name, *globs)})
        if not blobs:
            return list(files)
        lines = "".join(f"{blob}\n" for blob in blobs).encode("ascii")
        # git itself fetches the missing blobs of a partial clone with these options.
        words = ("fetch", "--quiet", "--no-tags", "--no-write-fetch-head", "--filter=blob:none", "--stdin", "origin")
        done = self._fetch("-c", "fetch.negotiationAlgorithm=noop", *words, stdin=lines)
        if done.returncode:
            raise SourceError(f"the files of {self._shown} cannot be fetched: {_message(done.stderr)}")
        done = self._run("cat-file", "--batch-check", "--buffer", stdin=lines)
        replies = [line.split() for line in done.stdout.decode("ascii").splitlines()]
        sizes = {
            identity: int(size)
            for identity, kind, size in (reply for reply in replies if len(reply) == 3)
            if kind == "blob"
        }
        return [replace(file, size=sizes.get(file.id)) for file in files]

    def _command(self, *words: str) -> Sequence[str]:
        at = (f"--git-dir={self._folder}",) if self._url is not None else ("-C", str(self._folder))
        return [*_git(f"safe.directory={self._folder}"), *at, *words]

    def _run(self, *words: str, stdin: bytes = b"") -> subprocess.CompletedProcess[bytes]:
        return _call(self._command(*words), self._environment(), self._shown, stdin)

    def _environment(self) -> dict[str, str]:
        environment = {name: value for name, value in os.environ.items() if name not in _OF_A_REPOSITORY}
        environment |= {
            "GIT_ALLOW_PROTOCOL": ":".join(_TRANSPORTS) if self._url is not None else "none",
            "GIT_CEILING_DIRECTORIES": str(self._folder.parent),
            "GIT_NO_REPLACE_OBJECTS": "1",  # an id identifies the bytes
            "GIT_OPTIONAL_LOCKS": "0",
            "GIT_TERMINAL_PROMPT": "0",
            "LC_ALL": "C",
        }
        environment.setdefault("GIT_SSH_COMMAND", "ssh -o BatchMode=yes -o ConnectTimeout=30 -o ServerAliveInterval=15")
        if self._url is None:
            environment["GIT_NO_LAZY_FETCH"] = "1"
        return environment


class _Reader:
    """A `git cat-file --batch` process, used only by the process that started it."""

    def __init__(self, command: Sequence[str], environment: Mapping[str, str], where: str, folder: Path) -> None:
        self._where, self._folder, self._process_id = where, folder, os.getpid()
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed with this
        try:
            self._process = subprocess.Popen(  # noqa: S603
                command, env=dict(environment), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=self._errors
            )
        except FileNotFoundError as error:
            self._errors.close()
            raise _no_git(where) from error
        self.close = weakref.finalize(self, _end, self._process, self._errors, self._process_id)

    @property
    def usable(self) -> bool:
        """True in the process that started the reader, as long as the reader runs."""
        return self._process_id == os.getpid() and self._process.poll() is None

    def read(self, name: str, identity: str) -> BinaryIO:
        questions, answers = cast("IO[bytes]", self._process.stdin), cast("IO[bytes]", self._process.stdout)
        try:
            questions.write(f"{identity}\n".encode("ascii"))
            questions.flush()
            header = answers.readline().split()
        except BrokenPipeError:
            header = []
        if not header:
            self._process.wait()
            self._errors.seek(0)
            message = _message(self._errors.read())
            self.close()
            raise OSError(f"git cannot read {shown(name)} from {self._where}: {message}")
        if len(header) != 3:
            raise OSError(f"{self._where} lacks {shown(name)} ({identity}): the repository is not complete")
        size = remaining = int(header[2])

        def fill(file: io.BufferedRandom) -> None:
            nonlocal remaining
            while remaining:
                chunk = answers.read(min(remaining, _CHUNK))
                if not chunk:
                    raise OSError(f"git exited while reading {shown(name)} from {self._where}")
                remaining -= len(chunk)
                file.write(chunk)
            answers.read(1)  # the newline after the content

        try:
            file = filled(fill, self._folder)
        except BaseException:
            self.close()  # the rest of the answer would be read as the next answer
            raise
        with contextlib.ExitStack() as stack:
            stack.enter_context(file)
            if header[1] != b"blob":
                raise OSError(f"the object {identity} of {self._where} is not a file (blob)")
            if size < _LARGEST_POINTER and file.read(len(_POINTER)) == _POINTER:
                raise OSError(
                    f"{shown(name)} is a pointer of Git LFS, and the file itself is not in git: give a folder in which "
                    "`git lfs pull` has checked it out, or exclude the file"
                )
            file.seek(0)
            stack.pop_all()
        return file


def _end(process: subprocess.Popen[bytes], errors: IO[bytes], process_id: int) -> None:
    """End a reader's process; in a forked process, only close the pipes, since the process belongs to the parent."""
    errors.close()
    for pipe in (process.stdin, process.stdout):
        with contextlib.suppress(OSError):  # raised for a buffered request that cannot be sent any more
            cast("IO[bytes]", pipe).close()
    if process_id == os.getpid():
        process.kill()
        process.wait()


def _checked_url(repository: str) -> str | None:
    """Return the URL; None for a local folder. Raises SourceError for a string that git would misinterpret."""
    if not repository or repository.startswith("-") or not repository.isprintable():
        raise SourceError(f"{shown(repository)} is not a repository: give the folder or URL of a git repository")
    scheme, there, _ = repository.partition("://")
    if not there:
        local = repository.startswith(("/", ".", "~")) or Path(repository).exists()
        if not local and "::" in repository.partition("/")[0]:
            raise SourceError(f"{shown(repository)} names a git helper, which is not run: give a URL")
        return repository if not local and _SCP.fullmatch(repository) else None
    if scheme not in _TRANSPORTS:
        transports = ", ".join(f"{transport}://" for transport in _TRANSPORTS)
        raise SourceError(f"{shown(scheme)}:// is not a supported transport of git: expected one of {transports}")
    split = urlsplit(repository)
    if split.password is not None or (split.username and scheme in ("http", "https")):
        raise SourceError(
            f"the URL of the repository at {split.hostname} contains credentials: remove them, and let git find them "
            "in its credential helper (`git config credential.helper`)"
        )
    return repository


def _git(*more: str) -> list[str]:
    return [
        shutil.which("git") or "git",
        "--no-pager",
        *(word for setting in (*_CONFIGURATION, *more) for word in ("-c", setting)),
    ]


def _call(
    command: Sequence[str], environment: Mapping[str, str], where: str, stdin: bytes = b""
) -> subprocess.CompletedProcess[bytes]:
    try:
        return subprocess.run(command, env=dict(environment), input=stdin, capture_output=True, check=False)  # noqa: S603
    except FileNotFoundError as error:
        raise _no_git(where) from error


def _no_git(where: str) -> SourceError:
    return SourceError(
        f"reading {where} needs the program git, which is not in PATH: install it, as with apt install git"
    )


def _lines(stderr: bytes) -> Iterator[str]:
    for line in stderr.decode("utf-8", "replace").splitlines():
        line = "".join(letter for letter in line.strip() if letter.isprintable())
        if line and not line.startswith(("hint:", "warning:")):
            yield _SECRET.sub(r"\1", line.removeprefix("fatal: ").removeprefix("error: "))


def _message(stderr: bytes) -> str:
    """Return the beginning of git's message, on one line and without credentials."""
    return "; ".join(list(_lines(stderr))[:3])[:500].rstrip(".") or "no reason given"
