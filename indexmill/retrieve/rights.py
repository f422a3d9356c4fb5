"""Access control: a field of a document's metadata names the groups that may read it.

    {"access": ["staff", "legal"]}      members of one of these groups
    {"access": "staff"}                 a single group

A user reads as *principals*, the groups that the user is in. Groups are compared literally. A document without the
field is for everyone, unless the index requires the field: then it is for nobody. A document whose field names no group
(null, an empty string or list, a number) is for nobody, so that no mistake publishes a document.

Only this module decides who may read what: the build rejects a document whose groups are unclear; the reader hides it.
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
"""Passed instead of principals to read all documents: for operators of an index, for example to test all of it."""

Principals = Sequence[str] | AbstractSet[str] | Unrestricted | None
"""The types that ``principals=`` accepts; None for an anonymous user, who may read the documents for everyone."""


@dataclass(frozen=True, slots=True)
class Access:
    """The access control of an index.

    field: the metadata key of a document's groups. required: False if a document without the field is for everyone.
    """

    field: str
    required: bool

    @classmethod
    def of(cls, manifest: Manifest, where: object) -> Access | None:
        """Read the access control in a snapshot's manifest; None if all its documents are for everyone.

        Raises ConfigurationError if the access control has a format that this version does not know.
        """
        section: Any = manifest.configuration.get("corpus", {})
        access = section.get("access") if isinstance(section, dict) else section
        if access is None:
            return None
        if (
            not isinstance(access, dict)
            or access.keys() != {"field", "required"}
            or not isinstance(access["field"], str)
            or not isinstance(access["required"], bool)
        ):
            raise ConfigurationError(
                f"{where}: the manifest has access control in a format that this indexmill does not know; "
                "install a newer one"
            )
        return cls(access["field"], access["required"])


def groups_of(metadata: Mapping[str, Any], access: Access) -> frozenset[str] | None:
    """Return the groups that a document is for; None for everyone.

    Raises ValueError, whose message quotes no metadata, if a required field is missing, the field is nested in a key
    ``metadata``, or its value names no groups.
    """
    if access.field not in metadata:
        inside = metadata.get("metadata")
        if isinstance(inside, Mapping) and access.field in inside:
            raise ValueError(
                f"{access.field!r} is inside `metadata`, which was not unpacked: the record has keys of the same names"
            )
        if access.required:
            raise ValueError(f"there is no field {access.field!r}")
        return None
    value = metadata[access.field]
    groups = [value] if isinstance(value, str) else value
    if not isinstance(groups, list) or not groups or not all(isinstance(group, str) and group for group in groups):
        raise ValueError(
            f"the field {access.field!r} is neither a string nor a list of strings, or one of them is empty"
        )
    return frozenset(groups)


def principals_of(principals: Principals) -> frozenset[str] | Unrestricted:
    """Check the principals of a call. Raises BadInput for anything but a collection of strings."""
    if isinstance(principals, Unrestricted):
        return principals
    if principals is None:
        return frozenset()
    if isinstance(principals, str) or not isinstance(principals, (Sequence, AbstractSet)):
        raise BadInput(f"principals= is {principals!r:.200}; expected a list of groups")
    if not all(isinstance(group, str) and group for group in principals):
        raise BadInput(f"principals= is {list(principals)!r:.200}; expected groups, each a string that is not empty")
    return frozenset(principals)
