"""What the worker processes of a private cluster have when they start: they are forked from one that imported this.

Nothing here may start threads that do anything, which a fork would lack: polars and openvino do, and whoever needs them
imports them. (Arrow's allocator has one that looks after memory, and starts it again.)
"""

from __future__ import annotations

import gc
import signal
from importlib import import_module

# Ctrl-C reaches every process of a terminal. It is for the run, which would wait for dead workers for ever.
signal.signal(signal.SIGINT, signal.SIG_IGN)

for _name in (
    "distributed.nanny",
    "pyarrow.parquet",
    "tokenizers",
    "tasks.families.bm25.postings",
    "tasks.stages.embed.names",
    "tasks.stages.embed.titles",
    "tasks.stages.ingest.part",
    "tasks.families.lsh_tree.summaries",
    "tasks.families.lsh_tree.tree",
    "tasks.families.lsh_tree.vectors",
    "tasks.stages.recognise.rules",
    "tasks.stages.split.split",
    "tasks.families.zoom_graph.links",
):
    import_module(_name)

gc.freeze()  # what is there stays, and its pages are shared
