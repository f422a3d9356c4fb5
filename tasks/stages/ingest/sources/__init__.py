"""The connectors to sources of documents other than local files and folders.

source_interface  the interfaces of sources, which list and read files, or read the records after a cursor
source_kinds      opens a source from its settings
"""
