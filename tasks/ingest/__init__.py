"""The ingest stage: corpus files become documents, shard by shard, and a quarantine of the rows that cannot.

sources       paths, folders and globs -> files
readers       a file -> rows
front_matter  the YAML at the beginning of a Markdown file -> metadata
documents     a row -> a document, or a refusal with its reason
shards        the trie that divides documents among shards
spill         scan, plan, documents_of: the stage itself, in bounded memory
supervisor    scans in a process of its own, and finds the files that crash or stall it
scan_process  that process as the one that scans sees it; `scanner` is its program
"""
