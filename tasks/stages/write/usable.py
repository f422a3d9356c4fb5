"""What a written text must be to be used: long enough, no loop, and not the prompt again.

Small models write names in place of summaries, one sentence over and over, or what they were asked. Their answers fit
the schema, so only the text shows it.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from tasks.text.loops import loops

_OF_SOURCES = 16
_DELIMITER = re.compile("</?text-[0-9]+ [0-9a-f]+>")
"""The delimiters of source texts in a prompt."""


def is_usable(text: str, sources: Sequence[str], tokens: int) -> bool:
    """Return whether a text of about `tokens` tokens may be used.

    It has at least as many bytes as `tokens`, or a sixteenth of the bytes of its sources if these are few.
    """
    least = min(tokens, sum(len(source.encode()) for source in sources) // _OF_SOURCES)
    return len(text.encode()) >= least and not loops(text) and not _DELIMITER.search(text)
