"""The first words of passages."""
