"""The ingest stage: corpus files become documents, shard by shard; rows that cannot become documents go to quarantine.

listing       lists the files of paths, and of sources such as buckets and databases
source_files  lists the files of local folders and globs, and opens files
lake_folders  refuses the folders of tables, and reads columns from the names of partition folders
sources       one connector for each kind of source
known         the files read by the previous version, and which of them are unchanged
readers       reads the rows of a file
formats       the file formats that readers and connectors use, without importing either
documents     turns a row into a document, or into a rejection with its reason
spill         writes the documents of files to disk, in bounded memory (`spill_files` names the files)
shard_plan    selects the documents of the corpus from the scanned rows, and divides them into shards
part          the stage itself, which stores the documents of a shard as a part
read_part     stores files that are slow to read as parts, which outlive an interrupted build
memory        detection of out-of-memory errors
supervisor    runs scans in a child process, and finds the files that crash or stall it
scan_process  the parent's handle on the child process; `scanner` is its program
"""
