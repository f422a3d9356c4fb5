"""Answers to questions from the contents of a snapshot."""
