"""
Rows and prompts are data: Airflow's templates do not touch what is inside of them.

A path, a prompt's name or what an earlier task returned is rendered and resolved as usual. The texts of a
list of rows, or of a prompt that is written out, stay as they are: braces in them belong to the data or to
the prompt's own template.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from airflow.sdk import Context

#: Fields whose lists and mappings are data.
FIELDS = ("source", "prompt", "judge")


class Rows(Sequence[Any]):
    """
    Rows as an earlier task or the DAG gave them.

    Airflow shows and stores the rendered fields of a task; of rows it gets to know their number only.

    :param rows: the rows.
    """

    def __init__(self, rows: Sequence[Any]) -> None:
        # One slice is one request, where the rows are those of mapped tasks.
        self._rows = rows[:]

    def __getitem__(self, place: Any) -> Any:
        return self._rows[place]

    def __len__(self) -> int:
        return len(self._rows)

    def __iter__(self) -> Iterator[Any]:
        return iter(self._rows)

    def __repr__(self) -> str:
        return f"{len(self)} rows"


class Verbatim:
    """Stands before an operator's base, and keeps :data:`FIELDS` from being rendered inside."""

    def render_template(
        self, content: Any, context: Context, jinja_env: Any = None, seen_oids: set[int] | None = None
    ) -> Any:
        """Render anything but data."""
        name = next((name for name in FIELDS if content is getattr(self, name, None)), None)
        if name is None or isinstance(content, str):
            return super().render_template(content, context, jinja_env, seen_oids)  # type: ignore[misc]
        value = _resolved(content, context)
        is_rows = name == "source" and isinstance(value, Sequence) and not isinstance(value, str)
        return Rows(value) if is_rows else value


def _resolved(content: Any, context: Context) -> Any:
    """Put what earlier tasks returned into its place, and leave all else alone."""
    if isinstance(content, list | tuple):
        return [_resolved(element, context) for element in content]
    if isinstance(content, Mapping):
        return {key: _resolved(value, context) for key, value in content.items()}
    if not isinstance(content, os.PathLike) and hasattr(content, "resolve"):
        return content.resolve(context)
    return content
