"""Functions on texts that are independent of the pipeline: sentences and markup."""
