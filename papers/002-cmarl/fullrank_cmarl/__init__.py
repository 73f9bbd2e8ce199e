"""Paper 002 [CMARL]: containers against other ways to use many actors, at equal time.

Game processes are emulated: what is learnt is compared in virtual time, what is moved on services.
"""
