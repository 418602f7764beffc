"""Walks over a tree with a stack of its own: the depth of an expression costs no Python frames.

A visitor answers for a node at once, or is a generator: it yields a node whenever it needs the answer for that one, is
sent it, and returns its own.
"""

from collections.abc import Callable, Generator
from types import GeneratorType
from typing import Any, TypeVar

from allocator.cel.syntax.tree import Node

_T = TypeVar("_T")
Steps = Generator[Node, _T, _T]


def walk(root: Node, visit: Callable[[Node], _T | Steps[_T]]) -> _T:
    """The visitor's answer for a node."""
    waiting: list[Steps[_T]] = []
    answer: Any = visit(root)
    while True:
        if answer.__class__ is GeneratorType:
            waiting.append(answer)
            answer = None  # what starts a generator
        elif not waiting:
            return answer  # type: ignore[no-any-return]
        try:
            answer = visit(waiting[-1].send(answer))
        except StopIteration as end:
            waiting.pop()
            answer = end.value
