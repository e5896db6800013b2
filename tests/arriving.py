"""Yielded rows as another operator would receive them, without a JVM."""

import numpy as np
import pandas as pd
import pyarrow as pa


def arriving(rows, columns):
    """Return the encoded input frame of rows, made from columns of yielded rows."""
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
    """Decode a frame of yielded rows, and return the values of each column."""
    arrays = [frame[name].array.__arrow_array__() for name in frame]
    flat = (each.flatten() if pa.types.is_list(each.type) else each for each in arrays)
    return [each.to_pylist() for each in flat]
