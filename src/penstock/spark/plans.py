"""Walk Spark's plans, which live in the JVM."""

from collections.abc import Iterator
from typing import Any

Node = Any


def all_nodes(plan: Node) -> Iterator[Node]:
    """Yield a plan's nodes, outermost first, with those of its subqueries."""
    for node in own_nodes(plan):
        yield node
        for subquery in sequence(node.subqueries()):
            yield from all_nodes(subquery)


def own_nodes(plan: Node) -> Iterator[Node]:
    """Yield a plan's nodes, outermost first, without subqueries."""
    yield plan
    for child in children(plan):
        yield from own_nodes(child)


def children(node: Node) -> list[Node]:
    """Answer the nodes that a node takes its rows from."""
    return sequence(node.children())


def sequence(found: Node) -> list[Node]:
    """Answer the elements of a Scala sequence."""
    return [found.apply(index) for index in range(found.size())]


def class_name(node: Node) -> str:
    """Answer the name of a node's class, without its package."""
    return str(node.getClass().getSimpleName())
