"""``indexmill report``: write a page about a version."""

from __future__ import annotations

from pathlib import Path

import click

from indexmill.command.options import Options, common, kept_argument, kept_option
from indexmill.errors import BadInput
from indexmill.text.printable import one_line


@click.command("report")
@kept_argument("version", metavar="[VERSION]", required=False)
@kept_option("--alias", metavar="NAME", help="Report on the version that this alias points to.")
@click.option("--compare", metavar="VERSION", help="Compare it with another version: a number, an alias, or `newest`.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write the page to this file; - for standard output. By default report-VERSION.html in this folder.",
)
@common
def command(options: Options, compare: str | None, output: str | None) -> None:
    """Write a page about a version, the newest by default. Any browser opens it without scripts and network.

    VERSION is a number, an alias or `newest`. The page shows what the version's run changed, its quality and cost, the
    history up to it, and what it consists of. With --compare, it compares two versions: questions won and lost,
    documents and entities added and removed. An exported folder (`--store`) has no runs and no history.

    The page names documents and entities regardless of access rights. The command does not overwrite a file that is not
    a report. With --json the facts are printed as one object, and a page is written only with -o.
    """
    from indexmill.report.facts import facts_of
    from indexmill.report.report_page import GENERATOR, rendered
    from indexmill.store.pages import write_page

    store = options.store_path()
    facts = facts_of(store, *options.selected(), compare=None if compare is None else _version(store, compare))
    path = Path(output or ("report.html" if facts.version is None else f"report-{facts.version}.html"))
    if options.json:
        if output not in (None, "-"):
            write_page(path, rendered(facts), GENERATOR)
        options.print_json(facts.to_json())
    elif output == "-":
        click.echo(rendered(facts).encode(), nl=False)
    else:
        write_page(path, rendered(facts), GENERATOR)
        click.echo(one_line(str(path)))


def _version(store: str, word: str) -> int:
    from indexmill.command.versions import version_of
    from indexmill.store.bucket import place_of
    from indexmill.store.exported import is_exported
    from indexmill.store.reader import StoreReader

    location = place_of(store)
    if isinstance(location, Path) and is_exported(location):
        raise BadInput(f"{location} is an exported folder, which contains one version and no other to compare it with")
    return version_of(StoreReader(store), word)
