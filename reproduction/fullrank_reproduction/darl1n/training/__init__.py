"""Training as in [DARL1N, Sec. VI-A]: DARL1N against MADDPG, MFAC, EPC and SAC."""
