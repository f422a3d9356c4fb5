"""Rights: who may read which documents, by the groups that a field of their metadata names.

    {"access": ["staff", "legal"]}      those who are in one of these groups
    {"access": "staff"}                 a single group

A reader asks as its *principals*, the groups that it is in. Groups are compared as they are written. A document
without the field is for everyone, unless the index demands the field: then it is for nobody. A field that names no
group (null, an empty text or list, a number) is for nobody, so that no slip publishes a document.

What a document is for is decided here alone: the build refuses what it cannot tell, and the reader shows nothing of it.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Final

from indexmill.errors import BadInput, ConfigurationError

if TYPE_CHECKING:
    from indexmill.store.manifest import Manifest


class Unrestricted(Enum):
    """The type of ``UNRESTRICTED``."""

    UNRESTRICTED = "unrestricted"


UNRESTRICTED: Final = Unrestricted.UNRESTRICTED
"""In place of principals: reads all documents. For those who run an index, such as a test of the whole of it."""

Principals = Sequence[str] | AbstractSet[str] | Unrestricted | None
"""The types that ``principals=`` accepts; None for nobody in particular, who reads what is for everyone."""


@dataclass(frozen=True, slots=True)
class Access:
    """What an index says about rights.

    field: the key of the metadata that holds a document's groups. required: False if a document without it is for
    everyone.
    """

    field: str
    required: bool

    @classmethod
    def of(cls, manifest: Manifest, where: object) -> Access | None:
        """What a snapshot's manifest says; None if all its documents are for everyone.

        Raises ConfigurationError for a manifest that says it in a way that is not known here.
        """
        section: Any = manifest.configuration.get("corpus", {})
        said = section.get("access") if isinstance(section, dict) else section
        if said is None:
            return None
        if (
            not isinstance(said, dict)
            or said.keys() != {"field", "required"}
            or not isinstance(said["field"], str)
            or not isinstance(said["required"], bool)
        ):
            raise ConfigurationError(
                f"{where}: the manifest says who may read the documents in a way that this indexmill does not know; "
                "install a newer one"
            )
        return cls(said["field"], said["required"])


def groups_of(metadata: Mapping[str, Any], access: Access) -> frozenset[str] | None:
    """The groups that a document is for; None for everyone.

    Raises ValueError, its message without any content, if the metadata do not say.
    """
    if access.field not in metadata:
        inside = metadata.get("metadata")
        if isinstance(inside, Mapping) and access.field in inside:
            raise ValueError(f"{access.field!r} is inside `metadata`, some of whose keys the record has as well")
        if access.required:
            raise ValueError(f"there is no field {access.field!r}")
        return None
    said = metadata[access.field]
    groups = [said] if isinstance(said, str) else said
    if not isinstance(groups, list) or not groups or not all(isinstance(one, str) and one for one in groups):
        raise ValueError(f"the field {access.field!r} is neither a text nor a list of texts, or one of them is empty")
    return frozenset(groups)


def principals_of(given: Principals) -> frozenset[str] | Unrestricted:
    """The principals of a call. Raises BadInput for anything but a collection of texts."""
    if isinstance(given, Unrestricted):
        return given
    if given is None:
        return frozenset()
    if isinstance(given, str) or not isinstance(given, (Sequence, AbstractSet)):
        raise BadInput(f"principals= is {given!r:.200}; expected a list of groups")
    if not all(isinstance(one, str) and one for one in given):
        raise BadInput(f"principals= is {list(given)!r:.200}; expected groups, each a text that is not empty")
    return frozenset(given)
