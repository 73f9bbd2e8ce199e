"""Paper 004, multi-GPU MADDPG [Wiggins24]."""
