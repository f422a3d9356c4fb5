"""What a worker process of a private cluster does at its start, before it takes any work."""

from __future__ import annotations

import atexit
import os
import signal

# Ctrl-C reaches every process of a terminal. It is for the run, which would wait for dead workers for ever.
signal.signal(signal.SIGINT, signal.SIG_IGN)

# The first to be registered is the last to be called: everything has ended in its order, and freeing a model's kernels
# one by one, which takes a second and more, is left to the system.
atexit.register(os._exit, 0)
