"""The process that forks Spark's Python workers, here with what they import loaded already.

A worker needs a second of processor time for its imports, and one dies with each failing task;
after each task it looks for garbage among all that is loaded, which takes it 0.07 s.
"""

import gc
import os

# A process with threads is not one to fork; the one of pyarrow's allocator knows about forks.
os.environ["OPENBLAS_NUM_THREADS"] = "1"

import millpond_spark.worker.task  # noqa: F401 - for the workers
import pyspark.daemon
import pyspark.worker

if __name__ == "__main__":
    gc.freeze()
    pyspark.daemon.manager()
