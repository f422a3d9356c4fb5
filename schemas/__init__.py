"""The schemas of the data: one Arrow schema per table, and the configuration model."""
