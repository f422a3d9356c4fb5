"""Text: canonical names, index terms, and formatting of output for terminals."""
