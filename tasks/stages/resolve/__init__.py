"""From mentions to one table of entities, and what is said of each."""
