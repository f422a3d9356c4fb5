"""What knows texts and nothing of the pipeline: sentences and markup."""
