"""The connectors: sources that documents are read from, besides local files and folders.

place    the interfaces: list and read files, or read records from a cursor on
opening  settings -> a source
"""
