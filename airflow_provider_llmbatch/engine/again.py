"""Items that are sent once more because a person has said so."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass

from airflow_provider_llmbatch.engine.results.answers import Answers
from airflow_provider_llmbatch.engine.results.where import Where


@dataclass(frozen=True, slots=True, kw_only=True)
class Again:
    """
    Which items of a chunk are sent again, whatever they had ended as.

    Their rows go among those of the chunk, in a review round of their own.
    """

    #: review round of the new rows, above that of the rows they take the place of
    round: int
    indexes: Collection[int]
    #: what the results of the chunk answer; another model or prompt for some items does not change that
    answers: Answers

    def is_done(self, where: Where, index: int) -> bool:
        """Whether an item is not to be sent, or has been sent already in this round."""
        if index not in self.indexes:
            return True
        return where.is_final(index) and where.round(index) >= self.round

    def done(self, where: Where) -> int:
        """Return how many items of the chunk are not to be sent."""
        items = self.answers.stop - self.answers.start
        return items - sum(not self.is_done(where, index) for index in self.indexes)
