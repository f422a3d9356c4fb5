"""Stages that some documents kill: each is the real one, with its keys, unless a document holds one of these words."""

from __future__ import annotations

import os
import signal

from tasks.core.stage import Part

KILL, EXIT, RAISE, TOGETHER = "strikes-dead", "falls-silent", "raises-hell", "weighs-much"


def strike(part: Part) -> None:
    """Do to this process what a document asks for; several that weigh much are killed together."""
    texts = part.table("documents")["text"].to_pylist()
    if any(KILL in text for text in texts) or sum(TOGETHER in text for text in texts) > 1:
        os.kill(os.getpid(), signal.SIGKILL)
    if any(EXIT in text for text in texts):
        os._exit(3)
    if any(RAISE in text for text in texts):
        raise ValueError("hell")
