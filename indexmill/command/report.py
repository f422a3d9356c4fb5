"""``indexmill report``: a page about a version."""

from __future__ import annotations

from pathlib import Path

import click

from indexmill.command.options import Options, common, kept_argument, kept_option
from indexmill.errors import BadInput
from indexmill.text.printable import one_line


@click.command("report")
@kept_argument("version", metavar="[VERSION]", required=False)
@kept_option("--alias", metavar="NAME", help="Report about the version that this alias points to.")
@click.option("--compare", metavar="VERSION", help="Put another version beside it: a number, an alias, or `newest`.")
@click.option(
    "--output",
    "-o",
    metavar="FILE",
    help="Write the page here; report-VERSION.html in this folder by default, - for standard output.",
)
@common
def command(options: Options, compare: str | None, output: str | None) -> None:
    """Write a page about a version, the newest by default, that any browser opens: no script, no network.

    VERSION is a number, an alias or `newest`. The page says what the version's run changed, how good the result is and
    what it cost; how the versions up to it went; and what it consists of. With --compare, it puts two versions side by
    side: the questions won and lost, what came and went. An exported folder (`--store`) has no runs and no history.

    It names documents and entities whatever their access rights are. A file that is no report is not overwritten. With
    --json the facts are printed as one object, and a page is written only where -o says so.
    """
    from indexmill.report.facts import facts_of
    from indexmill.report.page import GENERATOR, rendered
    from indexmill.store.pages import write_page

    store = options.store_path()
    facts = facts_of(store, *_chosen(options), compare=None if compare is None else _version(store, compare))
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


def _chosen(options: Options) -> tuple[int | None, str | None]:
    """The version that the command line names, or else the alias."""
    from indexmill.command.versions import selection

    if options.version is not None and options.alias is not None:
        raise BadInput(
            f"the version {options.version} and --alias {options.alias} are given; expected one of them at most"
        )
    number, alias = selection(options.version)
    return number, alias or options.alias


def _version(store: str, word: str) -> int:
    """The version to compare with."""
    from indexmill.command.versions import version_of
    from indexmill.store.bucket import place_of
    from indexmill.store.exported import is_exported
    from indexmill.store.reader import StoreReader

    place = place_of(store)
    if isinstance(place, Path) and is_exported(place):
        raise BadInput(f"{place}: is an exported folder, which holds one version and none to compare with")
    return version_of(StoreReader(store), word)
