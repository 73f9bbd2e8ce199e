"""Codes: assignment matrices, their targets and tolerance, and the decoder.

>>> code = make_code("cyclic", rows=15, units=8, tolerance=3)
>>> code.matrix.shape, code.tolerance, int(code.load.max()), code.redundancy
((15, 8), 3, 3, 1.875)
>>> decoder = Decoder(code)
>>> decoder.offer(row=4), decoder.rank, decoder.decodable
(True, 1, False)
"""

from fullrank.codes.base import Code, Tolerance, codes, make_code, register, support
from fullrank.codes.decoding.decoder import Decoder

__all__ = ["Code", "Decoder", "Tolerance", "codes", "make_code", "register", "support"]
