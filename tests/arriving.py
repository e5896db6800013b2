"""What has been yielded, as it would arrive at another operator; no JVM takes part."""

import numpy as np
import pandas as pd


def arriving(rows, frame):
    """The carrier frame of incoming rows, by their codec, out of one of yielded rows."""
    columns = {f"nulls{first}": np.zeros(len(frame), np.int64) for first, _ in rows._words()}
    for at, carrier in enumerate(rows.carriers):
        column = frame.iloc[:, at]
        if carrier.filler is not None:
            nulls = column.isna().to_numpy()
            columns[f"nulls{at - at % 62}"] |= nulls.astype(np.int64) << at % 62
            column = column.array.to_numpy(type(carrier.filler), na_value=carrier.filler)
        columns[f"c{at}"] = column
    return pd.DataFrame(columns)
