"""
The gate for identities: finds what must not go on, and removes nothing.

Whoever needs files made anonymous takes a tool for that first; see docs/fusion.md.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import Any

#: Attributes that name a person. Dates and UIDs alone do not.
PERSON = ("PatientName", "PatientID", "OtherPatientIDs", "PatientAddress", "PatientTelephoneNumbers")
#: Values that those who make files anonymous put in.
_BLANK = re.compile(r"(anon|removed|redacted|deid|de-id|xxx|unknown|0+$)", re.IGNORECASE)
_CAPTURES = "1.2.840.10008.5.1.4.1.1.7"
_IN_NOTES = (
    re.compile(r"\b[\w.+-]+@[\w-]+\.[\w.-]+\b"),
    re.compile(r"\b\d{3}-\d{2}-\d{4}\b"),
    re.compile(r"(?<![\d.])\(?\d{3}\)?[ -]\d{3}[ -]\d{4}\b"),
    re.compile(r"\b(?:MRN|patient\s+(?:id|name|number))\b\s*[:#=]?\s*\w*\d{4,}", re.IGNORECASE),
    re.compile(r"\b(?:patient(?:'s)?\s+name|name\s+of\s+patient)\s*[:=]\s*\S+", re.IGNORECASE),
)


def in_header(head: Any) -> str | None:
    """Return the code of what a DICOM header tells about a person, None when it tells nothing."""
    if str(head.get("BurnedInAnnotation") or "").upper() == "YES" or str(
        head.get("SOPClassUID") or ""
    ).startswith(_CAPTURES):
        return "deid.burned_in"
    if str(head.get("PatientIdentityRemoved") or "").upper() == "YES":
        return None
    named = (str(head.get(name) or "").strip(" ^") for name in PERSON)
    return "deid.person" if any(value and not _BLANK.match(value) for value in named) else None


def in_slide(pictures: Iterable[str]) -> str | None:
    """Return a code when a slide carries pictures on which a label can be read."""
    return "deid.slide_label" if {"label", "macro"} & set(pictures) else None


def in_note(text: str) -> str | None:
    """Return a code when a note holds what looks like an identity; names alone cannot be told from words."""
    return "deid.note" if any(pattern.search(text) for pattern in _IN_NOTES) else None
