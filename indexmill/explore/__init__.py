"""The neighbourhood of an entity, a community or a question, as an interactive page."""
