from __future__ import annotations

from pydantic import BaseModel, field_validator


class ShortWord(BaseModel):
    """A type that demands more than its JSON schema says."""

    word: str

    @field_validator("word")
    @classmethod
    def is_short(cls, word: str) -> str:
        if len(word) > 5:
            raise ValueError("is too long")
        return word
