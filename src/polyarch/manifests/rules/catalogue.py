"""All rules, by id and by what their check takes; each module of rules lists its own.

The table is a contract with users. It feeds ``polyarch lint --rules`` and ``--explain``, the documentation and SARIF.
``polyarch.manifests.examples`` has a bad, a good and a fixed example of each rule.

Pure.
"""

from collections.abc import Mapping
from types import MappingProxyType

from polyarch.manifests.finding import Rule
from polyarch.manifests.rules import bundles, constraints, documents, images, pods, sources, subscriptions

IMAGE_RULES = images.IMAGE_RULES
POD_RULES = (*constraints.POD_RULES, *pods.POD_RULES)
BUNDLE_RULES = bundles.BUNDLE_RULES
OBJECT_RULES = (*documents.OBJECT_RULES, *subscriptions.OBJECT_RULES, *bundles.OBJECT_RULES)
SOURCE_RULES = sources.SOURCE_RULES
DOCUMENT_RULES = documents.DOCUMENT_RULES

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.id: rule
        for rule in sorted(
            (
                *images.RULES,
                *constraints.RULES,
                *pods.RULES,
                *bundles.RULES,
                *subscriptions.RULES,
                *sources.RULES,
                *documents.RULES,
            ),
            key=lambda rule: rule.id,
        )
    }
)
"""All rules by id, in order."""
