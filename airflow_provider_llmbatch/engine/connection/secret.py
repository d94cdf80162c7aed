"""A text that nobody sees by accident."""

from __future__ import annotations

import base64
import hashlib
import hmac
from typing import NoReturn
from urllib.parse import quote

#: Length of a credential's id in hex digits.
ID_DIGITS = 12

_SHOWN = "Secret('***')"


class Secret:
    """
    Hold a text that ``repr``, ``str``, formatting, JSON and pickle do not give away.

    Copies share the object, so that :func:`dataclasses.asdict` and :func:`copy.deepcopy` work.

    :param value: the text itself.
    """

    __slots__ = ("_value",)

    def __init__(self, value: str) -> None:
        self._value = value

    def reveal(self) -> str:
        """Return the text; call it where the text is sent, and nowhere else."""
        return self._value

    def digest(self) -> str:
        """Return an id that is the same wherever the text is the same, and does not lead back to it."""
        mac = hmac.new(b"llmbatch:credential", self._value.encode(), hashlib.sha256)
        return mac.hexdigest()[:ID_DIGITS]

    def forms(self) -> tuple[str, ...]:
        """Return the spellings to mask: as it stands, quoted for a URL, and in base64."""
        raw = self._value.encode()
        encoded = (quote(self._value, safe=""), base64.b64encode(raw), base64.urlsafe_b64encode(raw))
        texts = (e if isinstance(e, str) else e.decode().rstrip("=") for e in encoded)
        return tuple(dict.fromkeys((self._value, *texts)))

    def __repr__(self) -> str:
        return _SHOWN

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Secret):
            return NotImplemented
        return hmac.compare_digest(self._value.encode(), other._value.encode())

    def __hash__(self) -> int:
        return hash(self._value)

    def __copy__(self) -> Secret:
        return self

    def __deepcopy__(self, memo: object) -> Secret:
        return self

    def __reduce__(self) -> NoReturn:
        raise TypeError("A secret cannot be pickled; read the connection again where it is needed.")
