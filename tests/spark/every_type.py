"""Columns of every type that an operator accepts, with values up to the extremes."""

from tests.types.spark_type_language import HAS_TIME

# SQL literals by column: the type, and values up to the extremes.
SCALARS = {
    "a_bool": ("boolean", ["true", "false"]),
    "a_byte": ("tinyint", ["-128", "127"]),
    "a_short": ("smallint", ["-32768", "32767"]),
    "an_int": ("int", ["-2147483648", "2147483647"]),
    "a_long": ("bigint", ["-9223372036854775808", "9223372036854775807", "9007199254740993"]),
    "a_float": ("float", ["'NaN'", "'Infinity'", "1.1", "-0.0", "3.4028235E38"]),
    "a_double": ("double", ["'NaN'", "'-Infinity'", "0.1", "-0.0D", "4.9E-324D"]),
    "a_dec10": ("decimal(10,2)", ["99999999.99", "-0.01"]),
    "a_dec18": ("decimal(18,0)", ["999999999999999999", "-1"]),
    "a_dec38": ("decimal(38,18)", ["'12345678901234567890.123456789012345678'", "0"]),
    "a_string": ("string", ["''", "'ü€😀 \"x\", y'", "'a\\0b'"]),
    "a_binary": ("binary", ["X''", "X'00FF10'"]),
    "a_date": ("date", ["'0001-01-01'", "'9999-12-31'", "'1969-12-31'"]),
    "a_ts": (
        "timestamp",
        ["'0001-01-02 00:00:00.000001 UTC'", "'9999-12-30 23:59:59.999999 UTC'"],
    ),
    "an_ntz": (
        "timestamp_ntz",
        ["'0001-01-01 00:00:00.000001'", "'9999-12-31 23:59:59.999999'", "'2024-03-10 02:30:00'"],
    ),
    "an_interval": (
        "interval day to second",
        ["interval '-106751991 04:00:54.775807' day to second", "interval '0.000001' second"],
    ),
    "a_void": ("void", []),
}
TIMES = {"a_time": ("time(6)", ["'23:59:59.999999'", "'00:00:00'"])} if HAS_TIME else {}
NESTED = {
    "longs": ("array<bigint>", ["array(9007199254740993, null)", "array()"]),
    "doubles": ("array<double>", ["array(double('NaN'), null, double('Infinity'), -0.0D)"]),
    "times": ("array<timestamp_ntz>", ["array(timestamp_ntz'0001-01-01 00:00:00.000001', null)"]),
    "bins": ("array<binary>", ["array(X'00FF', null)"]),
    "a_map": ("map<string,decimal(20,3)>", ["map('k', 1.234, 'n', null)", "map()"]),
    "int_map": ("map<int,array<date>>", ["map(1, array(date'9999-12-31', null), 2, null)"]),
    "a_struct": (
        "struct<x:bigint,y:struct<z:string,d:double>>",
        ["struct(9223372036854775807, struct('z', double('NaN')))", "struct(null, null)"],
    ),
    "structs": ("array<struct<a:int,b:binary>>", ["array(struct(1, X'01'), null)"]),
    "odd_keys": (
        "map<struct<x:int,y:array<date>>,int>",
        ["map(struct(1, array(date'2020-01-02', null)), 2, struct(null, null), null)"],
    ),
}


def table(spark, columns):
    """Return a DataFrame with a row per value, whose other columns are null, and one row of nulls."""
    rows = []
    for name, (_, values) in columns.items():
        rows += [{name: value} for value in values]
    selects = [
        ", ".join(
            f"cast({row.get(name, 'null')} as {kind}) as {name}"
            if kind != "void"
            else f"null as {name}"
            for name, (kind, _) in columns.items()
        )
        for row in [*rows, {}]
    ]
    sql = " union all ".join(
        f"select {number} as id, {select}" for number, select in enumerate(selects)
    )
    return spark.sql(sql)


def as_text(df):
    """Return the rows as text by id; a cast to string shows every digit."""
    names = [f"cast({name} as string) as {name}" for name in df.columns if name != "a_binary"]
    binary = ["hex(a_binary) as a_binary"] if "a_binary" in df.columns else []
    return sorted(map(tuple, df.selectExpr(*names, *binary).collect()))
