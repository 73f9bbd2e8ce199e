"""Paper 003 [DMCAF]: collection by actors, workers and a learner.

Game processes are emulated by step times: two cores stand for twelve games.
"""
