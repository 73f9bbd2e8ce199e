"""The reproduction of [DARL1N, Sec. VI].

Training in Tables I to IV; Table V, the noise of decoded gradients, and the times of Fig. 7 and
Table VI in virtual time.
"""

from fullrank.reproduction.darl1n.experiment import SCALES, Scale, reproduce, size

__all__ = ["SCALES", "Scale", "reproduce", "size"]
