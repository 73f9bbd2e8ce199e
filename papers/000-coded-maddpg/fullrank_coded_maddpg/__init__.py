"""Paper 000, coded MADDPG [Wang21]."""
