"""What is computed: one module per stage or family; pure cores in a thin shell. Never imports prefect or dask."""
