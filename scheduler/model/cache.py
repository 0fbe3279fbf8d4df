"""Caches bounded by the size of their contents.

Tenants choose how many different queries there are and how long each is, and an answer may name every node.  So the number of
names in all queries and answers is bounded, not the number of answers alone.  Equal answers are held once.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Generic, TypeVar

MOST = 4096  # answers
MOST_NAMES = 500_000  # in all of them: some 30 MiB
PART = 64  # an answer larger than this fraction of the limit (1/PART) is not kept

Q = TypeVar("Q", bound=Hashable)
A = TypeVar("A", bound=Hashable)
V = TypeVar("V")


class BoundedDict(dict[Q, V]):
    """A dict that is emptied before it holds too much.  most: the largest sum of weights"""

    def __init__(self, most: int) -> None:
        super().__init__()
        self._most = most
        self._held = 0

    def keep(self, question: Q, answer: V, weight: int) -> V:
        """Keep this answer, unless it is too large.  weight: of the query and the answer together"""
        if weight * PART <= self._most:
            if self._held + weight > self._most:
                self.clear()
            self._held += weight
            self[question] = answer
        return answer

    def clear(self) -> None:
        """Drop all answers."""
        super().clear()
        self._held = 0


class BoundedCache(Generic[Q, A]):
    """Query to answer.  If there are too many answers, all are dropped."""

    def __init__(self, most: int = MOST, most_names: int = MOST_NAMES) -> None:
        self._most = most
        self._most_names = most_names
        self._answers: dict[Q, A] = {}
        self._held: dict[A, A] = {}
        self._names = 0

    def __len__(self) -> int:
        return len(self._answers)

    def get(self, question: Q) -> A | None:
        """The answer; None: not known."""
        return self._answers.get(question)

    def put(self, question: Q, answer: A, names: int, asked: int = 0) -> A:
        """Keep this answer, which holds that number of names.  Returns the equal answer that is held already, or this one.

        asked   number of texts of a pod in the query: they stay in memory after the pod is gone
        """
        if len(self._answers) >= self._most or self._names + asked > self._most_names:
            self.clear()
        self._names += asked
        if answer not in self._held:
            if self._names + names > self._most_names:
                self.clear()
            self._held[answer] = answer
            self._names += names
        same = self._answers[question] = self._held[answer]
        return same

    def clear(self) -> None:
        """Drop all answers."""
        self._answers.clear()
        self._held.clear()
        self._names = 0
