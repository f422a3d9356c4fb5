"""Stage `sbom`: the software bill of materials of the build environment, in CycloneDX JSON (1.6).

It lists the installed distributions that the pipeline requires, the Python that runs it, and the encoder's model with
the digest of its weights. This is the environment of the process that drives the build; a check ensures that workers
run the same code. The part's key covers all of it. The optional time and serial number are left out, so that the same
environment gives the same bytes.
"""

from __future__ import annotations

import json
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from importlib.util import find_spec
from typing import TYPE_CHECKING, Any

from indexmill.extras import not_installed
from indexmill.store.canonical import canonical_json
from indexmill.store.sbom_reader import SBOM
from tasks.core.part_runner import PartSpec
from tasks.core.run import Run
from tasks.core.stage import WHOLE, Output, Outputs, Stage, StageSettings

if TYPE_CHECKING:
    from cyclonedx.model.component import Component
    from cyclonedx.model.license import License

_ROOT, _EXTRA = "indexmill", "pipeline"
"""This program's distribution, and the extra that a build needs."""


@dataclass(frozen=True, kw_only=True)
class SbomSettings(StageSettings):
    """The contents of the bill.

    software: the output of `tasks.stages.sbom.software.installed`. python: the interpreter's implementation and
    version. model: the encoder's ``{"name", "weights", "licences"}``, weights as a SHA-256; empty for the test double.
    """

    software: Sequence[Mapping[str, Any]]
    python: Mapping[str, str]
    model: Mapping[str, Any] = field(default_factory=dict)


def drive(run: Run) -> None:
    """Make the bill of this environment. Raises ModelUnavailable if the library that writes bills is missing."""
    if find_spec("cyclonedx") is None:
        raise not_installed("run.sbom", "cyclonedx", instead="leave run.sbom out")
    from tasks.stages.sbom.software import installed, licence_of_model

    chosen, model = run.models.choice().model, {}
    if chosen is not None:
        weights = run.opened_encoder.fingerprint["weights"]
        model = {"name": chosen.name, "weights": weights, "licences": licence_of_model(chosen.folder)}
    settings = SbomSettings(
        software=installed(_ROOT, _EXTRA),
        python={"name": platform.python_implementation(), "version": platform.python_version()},
        model=model,
    )
    run.make(STAGE, [PartSpec(WHOLE, {}, settings)])


def bill_of_materials(settings: SbomSettings) -> bytes:
    """Return the bill as canonical JSON."""
    from cyclonedx.model import HashAlgorithm, HashType
    from cyclonedx.model.bom import Bom, BomMetaData
    from cyclonedx.model.component import Component, ComponentType
    from cyclonedx.model.lifecycle import LifecyclePhase, PredefinedLifecycle
    from cyclonedx.output import make_outputter
    from cyclonedx.schema import OutputFormat, SchemaVersion

    components = {package["name"]: _component(package) for package in settings.software}
    root = components.pop(_ROOT)
    root.type = ComponentType.APPLICATION
    python = settings.python
    others = [
        Component(
            name=python["name"],
            version=python["version"],
            type=ComponentType.PLATFORM,
            bom_ref=f"{python['name']}@{python['version']}",
        )
    ]
    if settings.model:
        weights = settings.model["weights"]
        model = Component(
            name=settings.model["name"],
            type=ComponentType.MACHINE_LEARNING_MODEL,
            bom_ref=f"model:{settings.model['name']}",
            hashes=[HashType(alg=HashAlgorithm.SHA_256, content=weights)] if weights else (),
            licenses=_licences(settings.model["licences"]),
        )
        others.append(model)
    lifecycles = [PredefinedLifecycle(LifecyclePhase.BUILD)]
    bom = Bom(components=[*components.values(), *others], metadata=BomMetaData(component=root, lifecycles=lifecycles))
    by_name = {**components, _ROOT: root}
    for package in settings.software:
        needed = [by_name[name] for name in package["requires"] if name in by_name]
        bom.register_dependency(by_name[package["name"]], [*needed, *(others if package["name"] == _ROOT else ())])
    written = json.loads(make_outputter(bom, OutputFormat.JSON, SchemaVersion.V1_6).output_as_string())
    del written["serialNumber"], written["metadata"]["timestamp"]
    return canonical_json(written)


def _component(package: Mapping[str, Any]) -> Component:
    """Return the component of a distribution, without a package URL if its origin is local to this machine."""
    from cyclonedx.model.component import Component
    from packageurl import PackageURL

    origin = package["origin"]
    purl = None
    if "local" not in origin:
        purl = PackageURL("pypi", name=package["name"], version=package["version"], qualifiers=dict(origin))
    return Component(
        name=package["name"],
        version=package["version"],
        bom_ref=f"{package['name']}@{package['version']}",
        purl=purl,
        licenses=_licences(package["licences"]),
    )


def _licences(stated: Sequence[str]) -> list[License]:
    """Return CycloneDX licences. In a list of several, expressions become names, since an expression must be alone."""
    from cyclonedx.contrib.license.factories import LicenseFactory
    from cyclonedx.model.license import LicenseExpression

    licences = [LicenseFactory().make_from_string(text) for text in stated]
    if len(licences) > 1:
        named = LicenseFactory().make_with_name
        licences = [named(licence.value) if isinstance(licence, LicenseExpression) else licence for licence in licences]
    return licences


STAGE: Stage[SbomSettings] = Stage(
    "sbom",
    version=1,
    compute=lambda part: Outputs(files={"sbom": bill_of_materials(part.settings)}),
    libraries=("cyclonedx-python-lib",),
    outputs=(Output("sbom", artifact=SBOM),),
)
