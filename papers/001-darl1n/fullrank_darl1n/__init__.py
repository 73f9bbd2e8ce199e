"""Paper 001 [DARL1N, Sec. VI].

Training in Tables I to IV and Figs. 2, 4(b) and 6; Table V, the noise of decoded gradients, and the
times of Fig. 7 and Table VI in virtual time. EPC and SAC, which the paper compares with, are not
built: the page has the paper's numbers for EPC, and Fig. 5, which is about SAC, is not tested.
"""
