"""The formats of files that documents are read from.

readers       a file -> rows
front_matter  the YAML at the beginning of a Markdown file -> metadata
json_array    a file that is one JSON array, object by object
"""
