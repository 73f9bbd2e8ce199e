"""Export of policies for use without Fullrank: one file per agent, checked against the run."""
