"""A table of results without some of its rows."""

from __future__ import annotations

import csv
import io
from collections.abc import Collection
from typing import IO, Any, BinaryIO

from airflow_provider_llmbatch.errors import ConfigurationError

_ID = "id"


def csv_without(source: BinaryIO, ids: Collection[str], target: IO[bytes]) -> int:
    """
    Copy a CSV file without the rows of some items, and return how many were left out.

    A table without a column ``id`` is none of ours, and nothing is left out.
    """
    text = io.TextIOWrapper(source, "utf-8-sig", newline="")
    written = io.TextIOWrapper(target, "utf-8", newline="", write_through=True)
    reader, writer, left_out = csv.reader(text), csv.writer(written), 0
    header = next(reader, [])
    writer.writerow(header)
    place = header.index(_ID) if _ID in header else None
    for row in reader:
        # An id that a spreadsheet would take for a formula was written with an apostrophe before it.
        id = row[place] if place is not None and place < len(row) else None
        if id is not None and (id in ids or id.removeprefix("'") in ids):
            left_out += 1
        else:
            writer.writerow(row)
    written.detach()
    text.detach()
    return left_out


def parquet_without(source: BinaryIO, ids: Collection[str], target: IO[bytes]) -> int:
    """
    Copy a Parquet file without the rows of some items, and return how many were left out.

    :raises ConfigurationError: when pyarrow is not installed.
    """
    try:
        import pyarrow
        import pyarrow.compute
        from pyarrow import parquet
    except ImportError as error:
        raise ConfigurationError(
            "There is a Parquet file, which needs pyarrow: install airflow-provider-llmbatch[parquet]."
        ) from error
    left_out = 0
    file: Any = parquet.ParquetFile(source)
    schema = file.schema_arrow
    if _ID not in schema.names:
        return 0
    wanted = pyarrow.array(sorted(ids), pyarrow.string())
    with parquet.ParquetWriter(target, schema) as writer:
        for batch in file.iter_batches():
            theirs = pyarrow.compute.cast(batch.column(_ID), pyarrow.string())
            kept = batch.filter(pyarrow.compute.invert(pyarrow.compute.is_in(theirs, wanted)))
            left_out += batch.num_rows - kept.num_rows
            writer.write_batch(kept)
    return left_out
