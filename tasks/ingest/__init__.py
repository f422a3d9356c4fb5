"""The ingest stage: corpus files become documents, shard by shard, and a quarantine of the rows that cannot.

sources     paths, folders and globs -> files
readers     a file -> rows
documents   a row -> a document, or a refusal with its reason
shards      the trie that divides documents among shards
spill       scan, plan, documents_of: the stage itself, in bounded memory
"""
