"""The places that documents are read from, besides files and folders of this machine.

place    what a place can do: list and read files, or read records from a cursor on
opening  settings -> a place
"""
