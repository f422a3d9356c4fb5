"""Put the automations of automations.yaml on a Prefect server: python infra/automations.py WEBHOOK_URL

Run it again after a change: automations of the same names are replaced, and the webhook's address is set anew.
With --block ID of a webhook block, print them for `prefect automation create --from-file`; nothing is installed.
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


def filled(webhook: UUID, file: Path = _FILE) -> dict[str, Any]:
    """The content of a file, calling the webhook of a block."""

    def fill(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: fill(one) for name, one in value.items()}
        if isinstance(value, list):
            return [fill(one) for one in value]
        return str(webhook) if value == "{webhook}" else value

    found: dict[str, Any] = fill(yaml.safe_load(file.read_text(encoding="utf-8")))
    return found


def automations(webhook: UUID, file: Path = _FILE) -> list[Automation]:
    """The automations of a file, calling the webhook of a block."""
    return [Automation(**one) for one in filled(webhook, file)["automations"]]


def install(url: str) -> list[str]:
    """Put the webhook and the automations on the server; returns the automations' names."""
    Webhook.register_type_and_schema()
    block = Webhook(method="POST", url=url).save(_WEBHOOK, overwrite=True)
    wanted = automations(block)
    with get_client(sync_client=True) as client:
        for one in wanted:
            for old in client.read_automations_by_name(one.name):
                client.delete_automation(old.id)
    for one in wanted:
        one.create()
    return [one.name for one in wanted]


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    how = parser.add_mutually_exclusive_group(required=True)
    how.add_argument("webhook", nargs="?", metavar="WEBHOOK_URL", help="where messages are posted: JSON, field text")
    how.add_argument("--block", type=UUID, metavar="ID", help="print the automations for this webhook block instead")
    chosen = parser.parse_args()
    if chosen.block is not None:
        print(yaml.safe_dump(filled(chosen.block), sort_keys=False), end="")
    else:
        for name in install(chosen.webhook):
            print(name)
