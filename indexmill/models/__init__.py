"""The models that encode texts and find names, each behind a protocol. Importing this package loads no library."""
