"""The computation. Never imports prefect or dask.

text      sentences and markup; knows nothing of the pipeline
llm       calls to language models: quota, ledger, batches, prompts
core      what every stage shares: parts and how they are made, workers, estimates, reports
stages    from files to entities and vectors; what families share
families  a folder each: stages, writers, checks
pipeline  runs of all stages: build, plan, backfill, gates, manifest

A folder imports from itself and from those above it in this list.
"""
