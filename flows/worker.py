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
    "tasks.bm25",
    "tasks.embed_names",
    "tasks.embed_titles",
    "tasks.ingest.part",
    "tasks.lsh_summaries",
    "tasks.lsh_tree",
    "tasks.lsh_vectors",
    "tasks.recognise",
    "tasks.split",
    "tasks.zoom_links",
):
    import_module(_name)

gc.freeze()  # what is there stays, and its pages are shared
