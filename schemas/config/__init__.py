"""The configuration: every setting of a build, validated, with the reason for its default.

There are two kinds of settings. Settings that shape the index (`split`, `shards`, `recognise`, `extract`, ...) are
written into the manifest and into the keys of the parts they shape. Settings of where and how a run works (`store`,
`corpus.paths`, `run`) never reach a published byte.

base           the base of every section
stages         splitting, shards, extraction, resolution
models         recogniser, encoder, language model
families       a section each
run            the run and its gates
configuration  all of them
file           reading a configuration file
explained      writing one with every setting

The settings of the corpus are in schemas/corpus.py: the processes that read it import nothing else.
"""

from __future__ import annotations

from schemas.config.configuration import Configuration
from schemas.config.families import FamilySettings
from schemas.config.file import load_configuration
from schemas.config.models import EmbedSettings, EndpointSettings, LlmSettings, Price
from schemas.config.run import DaskSettings, GateSettings
from schemas.config.stages import SplitSettings

__all__ = [
    "Configuration",
    "DaskSettings",
    "EmbedSettings",
    "EndpointSettings",
    "FamilySettings",
    "GateSettings",
    "LlmSettings",
    "Price",
    "SplitSettings",
    "load_configuration",
]
