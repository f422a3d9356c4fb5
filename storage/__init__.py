"""The store: blobs, receipts, refs, leases, publishing."""
