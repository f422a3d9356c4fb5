"""The content of the wheel `indexmill-pipeline`: the pipeline's packages in a separate folder."""

from __future__ import annotations

from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGES = ("flows", "tasks", "storage", "schemas")
FILES = ("sample/corpus.jsonl", "sample/questions.jsonl", "infra/automations.py", "infra/automations.yaml")
FILES += ("infra/prefect.yaml",)


class PipelineContent(BuildHookInterface[Any]):
    """Includes the packages and files, but not in an editable installation, which finds them in the checkout."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Name the included files; hatchling calls this before it builds a wheel."""
        if version != "editable":
            build_data["force_include"]["../../indexmill_pipeline"] = "indexmill_pipeline"
            for path in (*PACKAGES, *FILES):
                build_data["force_include"][f"../../{path}"] = f"indexmill_pipeline/{path}"
