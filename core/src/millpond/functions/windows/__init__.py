"""Windows: assigners, triggers, evictors, and the operator. The model is Flink's."""
