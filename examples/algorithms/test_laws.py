"""The laws of these algorithms: ``pytest test_laws.py`` where they are installed."""

from fullrank.conformance import algorithm_laws

TestFACMAC = algorithm_laws("facmac")
TestHysteretic = algorithm_laws("hysteretic", micro_batches=2)
TestIA2C = algorithm_laws("ia2c")
