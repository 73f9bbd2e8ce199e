"""Settings that every test shares."""

import os

os.environ.setdefault("OMP_NUM_THREADS", "1")
