"""Answers to questions, from what a snapshot holds."""
