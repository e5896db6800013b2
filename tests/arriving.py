"""What has been yielded, as it would arrive at another operator; no JVM takes part."""

import numpy as np
import pandas as pd
import pyarrow as pa


def arriving(rows, columns):
    """The carrier frame of incoming rows, by their codec, out of columns of yielded ones."""
    length = len(columns[0])
    frame = {
        f"nulls{first}": np.zeros(length, np.int64) for first in range(0, len(rows.carriers), 62)
    }
    for at, (carrier, column) in enumerate(zip(rows.carriers, columns, strict=True)):
        if carrier.filler is not None:
            nulls = column.is_null().to_numpy(zero_copy_only=False)
            frame[f"nulls{at - at % 62}"] |= nulls.astype(np.int64) << at % 62
        filled = column if carrier.filler is None else column.fill_null(carrier.filler)
        frame[f"c{at}"] = filled.to_numpy(zero_copy_only=False)
    return pd.DataFrame(frame)


def values_of(frame):
    """The values of each column of a carrier frame of yielded rows, by themselves or in lists."""
    arrays = [frame[name].array.__arrow_array__() for name in frame]
    flat = (each.flatten() if pa.types.is_list(each.type) else each for each in arrays)
    return [each.to_pylist() for each in flat]
