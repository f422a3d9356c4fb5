"""Text functions independent of the pipeline: sentences and markup."""
