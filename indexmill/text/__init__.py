"""Names, terms and characters."""
