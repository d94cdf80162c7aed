from __future__ import annotations

import io
import json
from collections.abc import Iterator
from decimal import Decimal

from pyarrow import parquet

from airflow_provider_llmbatch.engine.items import Cost, Outcome, Result
from airflow_provider_llmbatch.engine.sink.columns import columns
from airflow_provider_llmbatch.engine.sink.parquet import GROUP_ROWS, to_parquet

DOCUMENT = {"properties": {"label": {"type": "string"}, "score": {"type": "number"}}}


def results(count: int) -> Iterator[Result]:
    for index in range(count):
        cost = Cost(usd=Decimal("0.0000005") * index)
        yield Result(
            index=index,
            id=f"i{index}",
            outcome=Outcome.OK if index % 2 else Outcome.UNSENT,
            output={"label": "é", "score": index / 2} if index % 2 else None,
            cost=cost,
        )


def test_a_file_has_typed_columns_and_all_rows_in_order():
    content = b"".join(to_parquet(results(3), columns(DOCUMENT)))
    table = parquet.read_table(io.BytesIO(content))
    assert [str(table.schema.field(name).type) for name in ("id", "index", "output.score", "usd")] == [
        "string",
        "int64",
        "double",
        "decimal128(38, 18)",
    ]
    rows = table.to_pylist()
    assert [row["index"] for row in rows] == [0, 1, 2]
    assert (rows[1]["output.label"], rows[1]["output.score"], rows[1]["usd"]) == ("é", 0.5, Decimal("5E-7"))
    assert json.loads(rows[1]["output"]) == {"label": "é", "score": 0.5}
    assert (rows[0]["output"], rows[0]["output.label"]) == (None, None)


def test_a_file_without_results_is_a_table_without_rows():
    content = b"".join(to_parquet(iter(()), columns()))
    assert parquet.read_table(io.BytesIO(content)).num_rows == 0


def test_rows_leave_group_by_group():
    taken = 0

    def counted() -> Iterator[Result]:
        nonlocal taken
        for result in results(3 * GROUP_ROWS):
            taken += 1
            yield result

    pieces = to_parquet(counted(), columns(DOCUMENT))
    first = next(pieces)
    assert first
    assert taken == GROUP_ROWS
    rest = parquet.ParquetFile(io.BytesIO(first + b"".join(pieces)))
    assert (rest.num_row_groups, rest.metadata.num_rows) == (3, 3 * GROUP_ROWS)
