"""The reproduction of multi-GPU MADDPG (paper 004)."""
