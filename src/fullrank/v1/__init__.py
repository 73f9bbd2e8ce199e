"""Generated from protos/fullrank/v1 by tools/protos.py; never edited."""
