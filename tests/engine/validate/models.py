"""Output types that the tests of this folder share."""

from __future__ import annotations

from datetime import date
from decimal import Decimal
from enum import Enum
from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, field_validator


class Label(Enum):
    OK = "ok"
    BAD = "bad"


class Quote(BaseModel):
    """A passage of the source."""

    text: str
    page: int = Field(ge=1)


class Node(BaseModel):
    value: int
    left: Node | None = None
    children: list[Node] = []


class Cat(BaseModel):
    kind: Literal["cat"]
    lives: int = 9
    name: str | None = "Tom"


class Dog(BaseModel):
    kind: Literal["dog"]
    lives: int | None = None


class Finding(BaseModel):
    label: Label
    score: float = 0.5
    quotes: list[Quote] = []
    best: Quote | None = Field(None, description="the passage that decides")
    seen: date | None = None
    price: Decimal = Decimal(0)


class Pets(BaseModel):
    pet: Annotated[Cat | Dog, Field(discriminator="kind")]


class Counts(BaseModel):
    words: dict[str, int]


class Aliased(BaseModel):
    model_config = ConfigDict(populate_by_name=True)
    page_number: int = Field(alias="pageNumber")


class Fragile(BaseModel):
    value: Any

    @field_validator("value")
    @classmethod
    def look_up(cls, value: Any) -> Any:
        return {"known": 1}[value]


QUOTE_DOCUMENT = {"type": "object", "properties": {"text": {"type": "string"}}, "required": ["text"]}
NOT_A_TYPE = "text"


def not_a_type() -> None:
    """Be something that no schema can be made of."""
