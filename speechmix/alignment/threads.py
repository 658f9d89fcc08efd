"""Run small matrix products on one thread.

The aligner's arrays are a few hundred rows. On two cores that something else uses, too, threads
took three to four times the processor time of one thread, to the same word times; and an alignment
does not depend on the number of cores.
"""

from __future__ import annotations

from threadpoolctl import threadpool_limits


def run_on_one_thread() -> threadpool_limits:
    """A context in which BLAS and OpenMP (numpy, scipy, scikit-learn) compute on one thread."""
    return threadpool_limits(limits=1)
