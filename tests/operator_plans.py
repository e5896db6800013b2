"""A plan of a simple operator on Spark, whose first column is the key."""

from millpond.plugins import get_registry
from millpond_spark.plan.plan import OperatorPlan
from millpond_spark.values.frames import RowCodec
from millpond_spark.values.output_frames import OutputCodec


def plan_of(uid, function, schema, config, backend):
    """Return the plan of an operator with one subtask, for rows of a schema whose first column is the key."""
    return OperatorPlan(
        uid=uid,
        function=function,
        rows=RowCodec.from_schema(schema),
        output=OutputCodec.from_schema(schema),
        key_positions=(0,),
        key_fields=(schema[0].dataType,),
        event_time=None,
        order_by=(),
        parallelism=1,
        config=config,
        resolution=get_registry().resolve(backend),
    )
