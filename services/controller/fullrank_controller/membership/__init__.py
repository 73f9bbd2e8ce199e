"""Learners that join and leave, and the assignment of rows to them."""
