"""The ingest stage: corpus files become documents, shard by shard; rows that cannot become documents go to quarantine.

listing       paths, and sources such as buckets and databases -> files
source_files  folders and globs of this machine -> files; a file -> its bytes
sources       one connector for each kind of source
known         the files read by the previous version, and which of them are unchanged
readers       a file -> rows
formats       the file formats that readers and connectors use; they import neither
documents     a row -> a document, or a rejection with its reason
spill         scan, carry: the documents of files, on disk, in bounded memory (`spill_files` names the files)
shard_plan    scanned rows -> the documents and the shards of the corpus
part          the documents of a shard, as a part: the stage itself
read_part     slowly read files, as parts that outlive an interrupted build
memory        detection of out-of-memory errors
supervisor    runs scans in a child process, and finds the files that crash or stall it
scan_process  the parent's handle on the child process; `scanner` is its program
"""
