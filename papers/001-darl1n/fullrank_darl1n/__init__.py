"""Paper 001 [DARL1N, Sec. VI].

Training in Tables I to IV and Figs. 2, 4(b), 5 and 6; Table V, the noise of decoded gradients, and
the times of Fig. 7 and Table VI in virtual time. Baselines that no learner of a code computes are
trained here in one process: SAC in Fig. 5, and EPC in Food Collection.
"""
