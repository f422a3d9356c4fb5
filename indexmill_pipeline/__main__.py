"""`python -m indexmill_pipeline MODULE ...` runs a module of the pipeline; without arguments it prints their folder."""

from __future__ import annotations

import runpy
import sys

from indexmill_pipeline import ROOT

if __name__ == "__main__":
    if sys.argv[1:]:
        del sys.argv[0]
        runpy.run_module(sys.argv[0], run_name="__main__", alter_sys=True)
    else:
        print(ROOT)
