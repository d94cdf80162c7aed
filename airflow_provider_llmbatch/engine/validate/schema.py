"""What a reply must look like: the form that is sent, and the check of what comes back."""

from __future__ import annotations

import hashlib
import json
import pkgutil
import re
import types
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from pydantic import TypeAdapter
from pydantic.errors import PydanticUserError

from airflow_provider_llmbatch.engine.connection.settings import ResponseFormat
from airflow_provider_llmbatch.engine.items import Json
from airflow_provider_llmbatch.engine.validate.absent import AbsentFields
from airflow_provider_llmbatch.engine.validate.conform import Conform, Mismatch, documented, typed
from airflow_provider_llmbatch.engine.validate.wire import to_wire
from airflow_provider_llmbatch.errors import ConfigurationError

_NO_TYPES = (types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType)
_FOREIGN_TO_NAMES = re.compile(r"[^a-zA-Z0-9_-]+")
_TELL = "Answer with one JSON value that satisfies this JSON Schema, and with nothing else:\n"


@dataclass(frozen=True, slots=True, eq=False)
class OutputSchema:
    """The schema of one task's replies; :func:`output_schema` makes it."""

    #: SHA-256 of the canonical schema, hex; ``""`` for plain text
    digest: str = ""
    #: what cannot be sent and is only checked afterwards, each with its place in the schema
    not_on_wire: tuple[str, ...] = ()
    #: the JSON Schema; None for plain text
    document: Mapping[str, Json] | None = field(default=None, repr=False)
    _absent: AbsentFields | None = field(default=None, repr=False)
    _forms: Mapping[ResponseFormat, dict[str, Any]] = field(default_factory=dict, repr=False)
    _told: str | None = field(default=None, repr=False)
    _conform: Conform | None = field(default=None, repr=False)

    @property
    def is_text(self) -> bool:
        """Whether replies are plain text, with nothing to check."""
        return self._conform is None

    def response_format(self, form: ResponseFormat = "json_schema") -> dict[str, Any] | None:
        """
        Return the value of the request parameter ``response_format``.

        None for plain text, and for a schema that cannot be sent. All requests share the one value.

        :param form: the form that the service takes.
        """
        return self._forms.get(form)

    def instructions(self, form: ResponseFormat = "json_schema") -> str | None:
        """
        Return what the prompt has to say about the schema, since nobody else shows it to the model.

        :param form: the form that the service takes.
        """
        return None if form == "json_schema" and form in self._forms else self._told

    def conform(self, text: str, value: Json) -> Json:
        """
        Return what to keep of a reply.

        :param text: the reply, strict JSON.
        :param value: the same, parsed.
        :raises Mismatch: when it does not satisfy the schema.
        """
        if self._conform is None:
            return value
        try:
            return self._conform(text, value)
        except Mismatch:
            # Only now look for a null that means "absent": most replies have none, and it costs a walk.
            if "null" not in text or self._absent is None:
                raise
            pruned = self._absent.without(value)
            if pruned == value:
                raise
            return self._conform(json.dumps(pruned), pruned)


def output_schema(spec: Any) -> OutputSchema:
    """
    Return the schema that ``spec`` stands for.

    :param spec: a pydantic model or any other type; a path to one, ``package.module:Model``; a JSON Schema as
        a mapping; or None or ``str`` for plain text.
    :raises ConfigurationError: when it stands for none.
    """
    if spec is None or spec is str:
        return OutputSchema()
    if isinstance(spec, str):
        return output_schema(_named(spec))
    if isinstance(spec, Mapping):
        return _schema(*_plain(spec))
    adapter = _adapter(spec)
    document = adapter[1]
    return _schema(document, json.dumps(document, sort_keys=True), typed(adapter[0]))


def _schema(document: dict[str, Any], canonical: str, conform: Conform | None = None) -> OutputSchema:
    conform = conform or documented(document)
    wire = to_wire(document)
    name = _FOREIGN_TO_NAMES.sub("_", str(document.get("title", "")))[:64].strip("_") or "output"
    sent = {"name": name, "strict": wire.strict, "schema": wire.schema}
    forms: dict[ResponseFormat, dict[str, Any]] = {
        "json_schema": {"type": "json_schema", "json_schema": sent},
        # These services build a grammar of it, which takes the schema as it is, with the sizes of its lists.
        "json_object_schema": {"type": "json_object", "schema": document},
        "json_object": {"type": "json_object"},
    }
    return OutputSchema(
        digest=hashlib.sha256(canonical.encode()).hexdigest(),
        not_on_wire=wire.lost,
        document=document,
        _absent=AbsentFields(document),
        _forms=forms if wire.schema else {},
        _told=_TELL + json.dumps(document, ensure_ascii=False, separators=(",", ":")),
        _conform=conform,
    )


def _named(path: str) -> Any:
    try:
        found = pkgutil.resolve_name(path)
    except (ImportError, AttributeError, ValueError) as error:
        raise ConfigurationError(
            f"The output type {path!r} cannot be imported: {error}. Write it as 'package.module:Model', and "
            "put the module where workers can import it (installed, or beside the DAG in its bundle)."
        ) from error
    if isinstance(found, str):
        raise ConfigurationError(f"The output type {path!r} is a text; it must be a type or a JSON Schema.")
    return found


def _plain(spec: Mapping[str, Any]) -> tuple[dict[str, Any], str]:
    try:
        canonical = json.dumps(dict(spec), sort_keys=True, allow_nan=False)
    except (TypeError, ValueError) as error:
        raise ConfigurationError(f"The output schema is no JSON: {error}. Use JSON values only.") from error
    # Loaded from unsorted text: the order of the fields is the order in which a model fills them in.
    return json.loads(json.dumps(dict(spec))), canonical


def _adapter(spec: Any) -> tuple[TypeAdapter[Any], dict[str, Any]]:
    if isinstance(spec, _NO_TYPES):
        raise ConfigurationError(
            f"The output type is a {type(spec).__name__} ({spec!r}); give a pydantic model, another type, "
            "or a JSON Schema."
        )
    try:
        adapter: TypeAdapter[Any] = TypeAdapter(spec)
        return adapter, adapter.json_schema()
    except (PydanticUserError, TypeError, NameError, AttributeError) as error:
        words = str(error).splitlines()[0]
        raise ConfigurationError(
            f"No JSON Schema can be made of the output type {spec!r}: {words}. Give every field a type that "
            "JSON can hold."
        ) from error
