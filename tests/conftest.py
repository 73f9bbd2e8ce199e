"""Settings shared by all tests."""

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is no reason to fail.
whole = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.register_profile("fullrank", whole)
settings.register_profile("quick", whole, max_examples=30)  # of `make test`
settings.load_profile("fullrank")
