"""The checks before anything is published."""
