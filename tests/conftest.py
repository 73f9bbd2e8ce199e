"""Settings shared by all tests."""

import os

from hypothesis import HealthCheck, settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

# A busy machine is no reason to fail.
settings.register_profile("fullrank", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("fullrank")
