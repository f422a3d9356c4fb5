"""Scheduling and workers: Prefect flows, the Dask client, and the pipeline's commands. No algorithms."""
