"""The process that forks Spark's Python workers, with its imports preloaded for the tests.

A worker needs a second of processor time for its imports, and one ends with each failing task. Its
garbage collection after each task takes 0.07 s.
"""

import gc
import os

# A process with threads should not be forked; pyarrow's allocator thread supports forks.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import millpond_spark.worker.task  # noqa: F401 - for the workers
import pyspark.daemon
import pyspark.worker

if __name__ == "__main__":
    gc.freeze()
    pyspark.daemon.manager()
