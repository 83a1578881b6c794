"""All rules, grouped by what their check takes: a rule is one module with ``RULE`` and ``check``, and one row here.

The table is a contract with users (MF-020, MF-021). It feeds ``polyarch lint --rules`` and ``--explain``, the
documentation and SARIF. ``polyarch.manifests.examples`` has a bad, a good and a fixed example of each rule.

Pure.
"""

from collections.abc import Iterable, Mapping
from types import MappingProxyType
from typing import Protocol, TypeVar

from polyarch.manifests.finding import Finding
from polyarch.manifests.lint.bundles import (
    ma201_broken_promise,
    ma202_missing_label,
    ma203_misread_label,
    ma204_behind_manager,
    ma205_deployment,
    ma206_related_images,
    ma207_unpinned,
    ma208_bundle_image,
    ma209_overrides,
    ma210_catalog,
    ma211_missing_child,
)
from polyarch.manifests.lint.bundles.bundle_facts import BundleFacts
from polyarch.manifests.lint.constraints import (
    ma101_unconstrained,
    ma102_excess,
    ma103_unused,
    ma104_nowhere,
    ma105_conflict,
    ma106_no_system,
    ma107_terms,
    ma109_node_selector,
    ma115_os_name,
)
from polyarch.manifests.lint.documents import (
    ma117_obsolete,
    ma901_template,
    ma902_unparsed,
    ma903_unmatched,
    ma904_unproven,
)
from polyarch.manifests.lint.facts import Draft, ObjectFacts, PodFacts
from polyarch.manifests.lint.images import (
    ma001_unresolved,
    ma002_one_platform,
    ma003_required,
    ma004_child_digest,
    ma005_other_content,
    ma006_index_entries,
    ma007_no_system,
    ma008_locked,
    ma009_variants,
    ma010_format,
    ma011_name,
)
from polyarch.manifests.lint.images.image_place import ImagePlace
from polyarch.manifests.lint.options import LintOptions
from polyarch.manifests.lint.pods import (
    ma108_deprecated_label,
    ma110_unknown_value,
    ma111_preferred_term,
    ma112_missing_preference,
    ma113_tolerations,
    ma114_init_container,
    ma116_passed_image,
)
from polyarch.manifests.lint.rule import Rule
from polyarch.manifests.lint.sources import (
    ma301_dockerfile,
    ma302_build,
    ma303_go,
)
from polyarch.manifests.lint.sources.source_kinds import Hit
from polyarch.manifests.scan.scanning import Scan
from polyarch.manifests.scan.sets import Answers
from polyarch.manifests.scan.text import SourceText

Given = TypeVar("Given", contravariant=True)
Found = TypeVar("Found", covariant=True)


class Ruling(Protocol):
    """A module with a rule."""

    RULE: Rule


class Checked(Ruling, Protocol[Given, Found]):
    """A module that checks one thing it is given."""

    def check(self, given: Given, /) -> Iterable[Found]: ...


class SourceRule(Ruling, Protocol):
    """A module that checks a build file or Go file."""

    def check(self, source: SourceText, answers: Answers, options: LintOptions, /) -> Iterable[Hit]: ...


IMAGE_RULES: tuple[Checked[ImagePlace, Draft], ...] = (
    ma001_unresolved,
    ma002_one_platform,
    ma003_required,
    ma004_child_digest,
    ma005_other_content,
    ma006_index_entries,
    ma007_no_system,
    ma008_locked,
    ma009_variants,
    ma010_format,
    ma011_name,
)
POD_RULES: tuple[Checked[PodFacts, Draft], ...] = (
    ma103_unused,
    ma109_node_selector,
    ma106_no_system,
    ma115_os_name,
    ma108_deprecated_label,
    ma110_unknown_value,
    ma111_preferred_term,
    ma112_missing_preference,
    ma113_tolerations,
    ma114_init_container,
    ma116_passed_image,
)
ONE_OF: tuple[Ruling, ...] = (ma105_conflict, ma104_nowhere, ma107_terms, ma102_excess, ma101_unconstrained)
"""``constraints.precedence`` chooses at most one of these for a pod specification."""
BUNDLE_RULES: tuple[Checked[BundleFacts, Draft], ...] = (
    ma201_broken_promise,
    ma202_missing_label,
    ma203_misread_label,
    ma204_behind_manager,
    ma206_related_images,
    ma207_unpinned,
)
OBJECT_RULES: tuple[Checked[ObjectFacts, Draft], ...] = (ma117_obsolete, ma209_overrides, ma211_missing_child)
SOURCE_RULES: tuple[SourceRule, ...] = (ma301_dockerfile, ma302_build, ma303_go)
DOCUMENT_RULES: tuple[Checked[Scan, Finding], ...] = (ma901_template, ma902_unparsed)
ELSEWHERE: tuple[Ruling, ...] = (ma205_deployment, ma208_bundle_image, ma210_catalog, ma903_unmatched, ma904_unproven)
"""Rules that need more than one file or object, or are about the run."""

RULES: Mapping[str, Rule] = MappingProxyType(
    {
        rule.id: rule
        for rule in sorted(
            (
                module.RULE
                for family in (
                    IMAGE_RULES,
                    POD_RULES,
                    ONE_OF,
                    BUNDLE_RULES,
                    OBJECT_RULES,
                    SOURCE_RULES,
                    DOCUMENT_RULES,
                    ELSEWHERE,
                )
                for module in family
            ),
            key=lambda rule: rule.id,
        )
    }
)
"""All rules by id, in order."""
