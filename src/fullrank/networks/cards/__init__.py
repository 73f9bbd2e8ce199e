"""Kernels of CUDA in Triton, of which every sum has one order, whatever is computed beside it.

Modules named ``*_kernels`` import triton, which torch brings where it is built for CUDA; they are
imported once there is a tensor on a card.
"""
