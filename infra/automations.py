"""Install the automations of automations.yaml on a Prefect server: python -m indexmill_pipeline infra.automations URL

Run it again after a change: it replaces automations of the same names and the webhook's address. With --block and the
ID of a webhook block, it prints them for `prefect automation create --from-file` and installs nothing.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any
from uuid import UUID

import yaml
from prefect.automations import Automation
from prefect.blocks.webhook import Webhook
from prefect.client.orchestration import get_client

_FILE = Path(__file__).with_name("automations.yaml")
_WEBHOOK = "indexmill-alerts"


def filled(webhook: UUID) -> dict[str, Any]:
    """Return the content of automations.yaml, with the id of the webhook block filled in."""

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fill(item) for name, item in value.items()}
        if isinstance(value, list):
            return [fill(item) for item in value]
        return str(webhook) if value == "{webhook}" else value

    content: dict[str, Any] = fill(yaml.safe_load(_FILE.read_text(encoding="utf-8")))
    return content


def automations(webhook: UUID) -> list[Automation]:
    return [Automation(**values) for values in filled(webhook)["automations"]]


def install(url: str) -> list[str]:
    """Install the webhook and the automations on the server; returns the automations' names."""
    Webhook.register_type_and_schema()
    block = Webhook(method="POST", url=url).save(_WEBHOOK, overwrite=True)
    requested = automations(block)
    with get_client(sync_client=True) as client:
        for automation in requested:
            for existing in client.read_automations_by_name(automation.name):
                client.delete_automation(existing.id)
    for automation in requested:
        automation.create()
    return [automation.name for automation in requested]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("webhook", nargs="?", metavar="WEBHOOK_URL", help="URL to post messages to: JSON with field text")
    how.add_argument("--block", type=UUID, metavar="ID", help="print the automations for this webhook block instead")
    chosen = parser.parse_args()
    if chosen.block is not None:
        print(yaml.safe_dump(filled(chosen.block), sort_keys=False), end="")
    else:
        for name in install(chosen.webhook):
            print(name)
