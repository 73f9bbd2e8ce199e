"""A run in one process: its table and all units in the controller, no network."""
