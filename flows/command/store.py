"""``indexmill store``: checks of the storage of an index."""

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
    """Check the storage of an index."""


@command.command("check", short_help="Check that an object store keeps the promises that an index relies on.")
@click.argument("url", metavar="[URL]", required=False)
@common
def check(options: Options, url: str | None) -> None:
    """Check that an object store keeps the promises an index relies on. URL: s3://BUCKET/PREFIX, gs:// or az://.

    Without URL, the configured store is checked. Services that speak S3's protocol differ in their promises: some let
    two writers create the same name, so that two runs would publish the same version. Each promise is checked with
    real requests: create-only writes, a race of twenty writers, reads and listings right after writes, uploads in parts
    and ranged reads. About 40 MB are transferred, below PREFIX/tmp/, and removed again. The first build into a new
    store does a short form of this check.

    Exit codes: 0 all promises are kept, 1 some are broken, as the output shows.
    """
    where = url or options.store_path()
    if not is_bucket(where):
        raise BadInput(f"{where} is a folder, but only object stores need this check: give s3://BUCKET/PREFIX")
    bucket, progress = Bucket(where), make_progress()
    progress.begin("store check", len(PROMISES))
    results = []
    for result in probe(bucket):
        results.append(result)
        progress.advance("store check")
    problems = [result for result in results if result.problem]
    progress.end("store check", f"{len(results) - len(problems)} of {counted(len(results), 'promise')} kept")
    lines = [one_line(f"{'broken' if result.problem else 'kept':6}  {result}") for result in results]
    print_result(
        options, {"store": bucket.url, "ok": not problems, "promises": [result.to_json() for result in results]}, lines
    )
    if problems:
        click.get_current_context().exit(1)
