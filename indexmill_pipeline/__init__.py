"""Find the pipeline: `import indexmill_pipeline` lets a process import `flows`, `tasks`, `storage` and `schemas`.

In an installation, these packages are inside the folder of this module, since their names are common: another project
may have a package `tasks`, too. Processes of the pipeline import this module first: the command, Dask's schedulers and
workers (`--preload indexmill_pipeline`) and deployed flows. In a checkout, the packages are next to this folder.
"""

from __future__ import annotations

import sys
from pathlib import Path

_NAMES = ("flows", "tasks", "storage", "schemas")
_HERE = Path(__file__).resolve().parent

ROOT = _HERE if (_HERE / "flows").is_dir() else _HERE.parent
"""The folder of the packages, and of `infra/` with the deployments."""


def _foreign() -> str:
    """Return the folder of another project's package that shadows one of the pipeline's; empty if there is none."""
    for name in _NAMES:
        paths = [Path(path).resolve() for path in getattr(sys.modules.get(name), "__path__", ())]
        if paths and ROOT / name not in paths:
            return str(paths[0])
    return ""


if foreign := _foreign():
    raise ImportError(f"the pipeline of indexmill cannot run in a process that has imported {foreign}: start another")
if str(ROOT) not in sys.path[:1]:
    sys.path.insert(0, str(ROOT))
