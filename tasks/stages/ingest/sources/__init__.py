"""The connectors to sources of documents other than local files and folders.

source_interface  the interfaces: list and read files, or read records from a cursor on
source_kinds      settings -> a source
"""
