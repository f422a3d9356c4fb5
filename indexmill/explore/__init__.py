"""The neighbourhood of an entity, a community or a question, as a page that one can explore."""
