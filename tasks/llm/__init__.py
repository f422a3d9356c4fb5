"""Calls to language models: prompts, the cluster-wide quota, the ledger, and handling of bad answers."""
