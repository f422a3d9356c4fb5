"""The configuration: every setting of a build, validated, with the reason for its default.

There are two kinds of settings. Settings that shape the index (`split`, `shards`, `recognise`, `extract`, ...) are
written into the manifest and into the keys of the parts they shape. Settings of the run (`store`, `corpus.paths`,
`run`) never affect a published byte.

settings_section  the base of every section
stages            splitting, shards, extraction, resolution
models            recogniser, encoder, language model
families          one section per family
run_settings      the run and its gates
configuration     all of them
file              loads a configuration file
explained         writes a configuration file with every setting

The settings of the corpus are in schemas/corpus.py: the processes that read the corpus import nothing else.
"""

from schemas.config.configuration import Configuration as Configuration
from schemas.config.families import FamilySettings as FamilySettings
from schemas.config.file import load_configuration as load_configuration
from schemas.config.models import EmbedSettings as EmbedSettings
from schemas.config.models import EndpointSettings as EndpointSettings
from schemas.config.models import LlmSettings as LlmSettings
from schemas.config.models import Price as Price
from schemas.config.run_settings import DaskSettings as DaskSettings
from schemas.config.run_settings import GateSettings as GateSettings
from schemas.config.stages import SplitSettings as SplitSettings
