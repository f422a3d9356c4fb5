"""What the data is: one Arrow schema per table, and the configuration model."""
