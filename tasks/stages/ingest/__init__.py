"""The ingest stage: corpus files become documents, shard by shard, and a quarantine of the rows that cannot.

sources       paths, folders and globs -> files
formats       a file -> rows
documents     a row -> a document, or a refusal with its reason
spill         scan, plan, documents_of: the stage itself, in bounded memory
supervisor    scans in a process of its own, and finds the files that crash or stall it
scan_process  that process as the one that scans sees it; `scanner` is its program
"""
