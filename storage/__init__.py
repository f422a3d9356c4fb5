"""Where it lives: blobs, receipts, refs, leases, publishing."""
