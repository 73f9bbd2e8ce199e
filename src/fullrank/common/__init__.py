"""Foundations that every package shares: types, errors, registry, seeding, durability."""
