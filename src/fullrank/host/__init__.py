"""Processes of one host: start, shutdown, locks, addresses, shared memory, certificates."""
