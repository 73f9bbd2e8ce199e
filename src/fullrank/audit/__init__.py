"""Audits: a ledger of the bits that learners reported, and proofs that settle disputes."""
