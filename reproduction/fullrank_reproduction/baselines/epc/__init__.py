"""Evolutionary population curriculum ([Long20]), a baseline of [DARL1N]."""
