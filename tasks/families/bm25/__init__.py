"""Lexical retrieval: postings of terms."""
