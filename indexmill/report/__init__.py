"""A report about a version: one HTML page that needs no script, network or server.

    from indexmill.report import render_report

    page = render_report("store")              # the newest version, as HTML
    page = render_report("store", 7, compare=3)

The page depends only on the contents of the store, and the same contents give the same bytes. It names documents and
entities regardless of access rights, since it is for operators of the index.
"""

from __future__ import annotations

import os


def render_report(
    where: str | os.PathLike[str], version: int | None = None, *, alias: str | None = None, compare: int | None = None
) -> str:
    """Render the report about a version as one HTML page.

    Args:
        where: the folder or URL of a store, or an exported folder.
        version: the version's number; the newest by default.
        alias: an alias of the version, instead of its number.
        compare: the number of a version to compare with.

    Raises:
        ModelUnavailable: the package that renders the page is not installed.
        SnapshotNotFound: there is no such store or version.
        BadInput: ``compare`` is given for an exported folder, or is the report's own version.
        CorruptBlob: a table or array that the report needs is damaged.
    """
    from indexmill.report.facts import facts_of
    from indexmill.report.report_page import rendered

    return rendered(facts_of(where, version, alias=alias, compare=compare))
