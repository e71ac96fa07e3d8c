"""The tests of raysim, in folders named as the rooms that they are about.

Imported before anything else of them, hence before numpy and torch read how many threads they may use.
"""

import os

from raysim.core import blas

# Products here are small: more threads than free cores cost tenfold, and test processes run side by side.
for _name in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_name, "1")

# As the command line does, so that its results are to the last bit those of this process.
blas.prefer()

# As raysim does before it imports Ray, which processes of which others are forked have imported already.
os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
