"""Runs of all stages: build, plan, backfill, gates and manifest."""
