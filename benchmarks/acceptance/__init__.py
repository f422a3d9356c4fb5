"""The acceptance run: the installed commands, as a user runs them, on real documents."""
