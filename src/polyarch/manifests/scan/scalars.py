"""Values of plain scalars, as Kubernetes reads YAML (as JSON) rather than as YAML 1.1 defines them.

libyaml resolves tags by YAML 1.1. Where the two differ, Kubernetes wins: a timestamp is a string, and so is ``1:30``,
which only YAML 1.1 takes for ninety.

Pure: imports yaml and nothing of polyarch.
"""

from yaml.nodes import ScalarNode

NULL = "tag:yaml.org,2002:null"
_BOOL = "tag:yaml.org,2002:bool"
_INT = "tag:yaml.org,2002:int"
_FLOAT = "tag:yaml.org,2002:float"
_TRUE = frozenset({"yes", "true", "on"})


def scalar_value(node: ScalarNode) -> str | int | float | bool | None:
    """The scalar as Kubernetes reads it; a string if the text does not match its tag."""
    text = str(node.value)
    try:
        if node.tag == NULL:
            return None
        if node.tag == _BOOL:
            return text.lower() in _TRUE
        if node.tag == _INT:
            return _integer(text)
        if node.tag == _FLOAT:
            return _float(text)
    except ValueError:
        return text
    return text


def _integer(text: str) -> int:
    digits = text.replace("_", "")
    sign, digits = (-1, digits[1:]) if digits.startswith("-") else (1, digits.removeprefix("+"))
    for prefix, radix in (("0b", 2), ("0x", 16), ("0o", 8)):
        if digits.startswith(prefix):
            return sign * int(digits[2:], radix)
    return sign * int(digits, 8 if digits.startswith("0") and len(digits) > 1 else 10)


def _float(text: str) -> float:
    digits = text.replace("_", "").lower()
    match digits.lstrip("+-"):
        case ".inf":
            return float("-inf") if digits.startswith("-") else float("inf")
        case ".nan":
            return float("nan")
    return float(digits)
