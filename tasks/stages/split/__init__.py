"""From documents to passages and sentences."""
