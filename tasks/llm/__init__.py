"""Asking language models: prompts, the quota of the whole cluster, the ledger in between, and answers that are bad."""
