"""One round: collection, the coded vectors, the audit."""
