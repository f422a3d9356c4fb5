"""Adapters for using an index as a retriever in other frameworks; each module needs the extra of the same name."""
