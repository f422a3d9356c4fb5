"""Loading a model without progress bars and warnings of its libraries, and without access to the hub."""

from __future__ import annotations

import logging
import os
import warnings
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def quiet() -> Iterator[None]:
    """Stay offline, and suppress progress bars and warnings, while a model is loaded or traced."""
    os.environ.setdefault("HF_HUB_DISABLE_TELEMETRY", "1")
    before = os.environ.get("HF_HUB_OFFLINE")
    os.environ["HF_HUB_OFFLINE"] = "1"
    loggers = [logging.getLogger(name) for name in ("transformers", "sentence_transformers", "nncf", "openvino")]
    levels = [logger.level for logger in loggers]
    try:
        for logger in loggers:
            logger.setLevel(logging.ERROR)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, levels, strict=True):
            logger.setLevel(level)
        if before is None:
            del os.environ["HF_HUB_OFFLINE"]
        else:
            os.environ["HF_HUB_OFFLINE"] = before
