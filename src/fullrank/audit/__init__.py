"""Audits: who computed which bits, and proofs of who was right."""
