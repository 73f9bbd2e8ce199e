"""Decoders: from received rows to the updates that they determine."""
