"""``indexmill store``: what a store relies on."""

from __future__ import annotations

import click

from flows.command.shared import make_progress, print_result
from indexmill.command.options import Options, common, shared_options
from indexmill.errors import BadInput
from indexmill.store.bucket import Bucket, is_bucket
from indexmill.text.counted import counted
from indexmill.text.printable import one_line
from storage.probe import PROMISES, probe


@click.group("store")
@shared_options
def command() -> None:
    """Check the place that holds an index, or is to hold one."""


@command.command("check", short_help="Try whether an object store keeps what an index relies on.")
@click.argument("url", metavar="[URL]", required=False)
@common
def check(options: Options, url: str | None) -> None:
    """Try whether an object store keeps what an index relies on. URL: s3://BUCKET/PREFIX, gs:// or az://.

    Without URL the configured store is tried. Services that speak the protocol of S3 differ in what they promise: some
    let two writers create the same name, and two runs would publish the same version. So each promise is tried with
    real requests: create-only writes, a race of twenty writers, reads and listings right after writes, uploads in parts
    and ranged reads. About 40 MB are moved, below PREFIX/tmp/, and nothing stays. The first build into a new store
    makes the short form of this check by itself.

    Exit codes: 0 everything is kept, 1 something is not, and the output says what.
    """
    where = url or options.store_path()
    if not is_bucket(where):
        raise BadInput(f"{where} is a folder, and only an object store needs to be tried: give s3://BUCKET/PREFIX")
    bucket, progress = Bucket(where), make_progress()
    progress.begin("store check", len(PROMISES))
    found = []
    for tried in probe(bucket):
        found.append(tried)
        progress.advance("store check")
    problems = [tried for tried in found if tried.problem]
    progress.end("store check", f"{len(found) - len(problems)} of {counted(len(found), 'promise')} kept")
    lines = [one_line(f"{'broken' if tried.problem else 'kept':6}  {tried}") for tried in found]
    print_result(
        options, {"store": bucket.url, "ok": not problems, "promises": [tried.to_json() for tried in found]}, lines
    )
    if problems:
        click.get_current_context().exit(1)
