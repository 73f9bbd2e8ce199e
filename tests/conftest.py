"""Settings shared by all tests."""

import os

from hypothesis import settings

os.environ.setdefault("OMP_NUM_THREADS", "1")

settings.register_profile("fullrank", deadline=None)  # a busy machine is no reason to fail
settings.load_profile("fullrank")
