"""The reproduction of [DARL1N, Sec. VI-B]: codes for learners that have data of their own.

Table V, the noise of decoded gradients, and the times of Fig. 7 and Table VI in virtual time.
"""

from fullrank.reproduction.darl1n.experiment import SCALES, Scale, cells, reproduce

__all__ = ["SCALES", "Scale", "cells", "reproduce"]
