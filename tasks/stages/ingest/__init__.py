"""The ingest stage: corpus files become documents, shard by shard; rows that cannot become documents go to quarantine.

sources       paths, folders and globs -> files
formats       a file -> rows
documents     a row -> a document, or a refusal with its reason
spill         scan, plan, documents_of: the stage itself, in bounded memory
supervisor    runs scans in a child process, and finds the files that crash or stall it
scan_process  the parent's handle on the child process; `scanner` is its program
"""
