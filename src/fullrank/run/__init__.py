"""A run as a pure state machine: events in, orders out; hosts execute the orders."""
