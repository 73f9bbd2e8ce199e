"""The straggler sidecar."""
