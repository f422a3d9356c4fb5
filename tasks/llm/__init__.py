"""Calls to language models: prompts, the cluster-wide quota, the ledger, and the handling of bad answers."""
