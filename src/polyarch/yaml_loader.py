"""The YAML loader of every file and ConfigMap that somebody else wrote."""

from typing import Any

import yaml

MAX_DEPTH = 100
"""Of nesting."""

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class SafeLoader(_LOADER):  # type: ignore[misc]
    """PyYAML's safe loader, whose errors are all ``yaml.YAMLError`` with a place.

    It refuses nesting without end, which would take the process with it: the C composer knows no limit. And it says
    where a value is that its tag does not allow (``!!bool x``, ``!!int ''``), for which PyYAML raises whatever its
    conversion met. The value may be a secret, so the error has the tag alone.
    """

    depth = 0

    def descend_resolver(self, parent: yaml.Node | None, index: object) -> None:
        self.depth += 1
        if self.depth > MAX_DEPTH:
            mark = parent.start_mark if parent is not None else None
            raise yaml.MarkedYAMLError(problem=f"nesting is deeper than {MAX_DEPTH} levels", problem_mark=mark)

    def ascend_resolver(self) -> None:
        self.depth -= 1

    def construct_object(self, node: yaml.Node, deep: bool = False) -> Any:
        try:
            return super().construct_object(node, deep)
        except (ArithmeticError, AttributeError, LookupError, TypeError, ValueError):
            tag = str(node.tag).rpartition(":")[2]
            problem = f"the value is no {tag}"
            raise yaml.constructor.ConstructorError(None, None, problem, node.start_mark) from None
