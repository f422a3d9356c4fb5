"""Plans: the work of a run, its causes and its cost."""
