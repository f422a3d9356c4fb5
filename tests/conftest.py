"""What every test shares."""

from __future__ import annotations

import os

# One thread per library: pytest runs a process per core, and results must not depend on the machine.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "POLARS_MAX_THREADS"):
    os.environ.setdefault(_name, "1")
