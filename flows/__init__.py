"""Scheduling and workers: Prefect flows, the Dask client, the pipeline's commands. No algorithm."""
