"""From mentions to one table of entities, and their descriptions."""
