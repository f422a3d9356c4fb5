"""The checks that run before anything is published."""
