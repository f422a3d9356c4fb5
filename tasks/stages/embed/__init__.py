"""From texts to vectors."""
