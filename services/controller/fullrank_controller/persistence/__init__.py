"""Records, checkpoints and the run directory."""
