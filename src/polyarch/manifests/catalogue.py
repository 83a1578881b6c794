"""Every rule: its id, how bad it is by default, what it means and what repairs it (MF-020, MF-021).

The table is the contract with users: ids are never reused or renumbered, and MA4xx belongs to live clusters
(``polyarch report``). It feeds ``polyarch lint --rules`` and ``--explain``, the page of the documentation and SARIF.
Examples, one bad, one good and one repaired for each rule, are in ``polyarch.manifests.examples``.

Pure.
"""

from collections.abc import Mapping
from types import MappingProxyType

import msgspec

from polyarch.manifests.finding import Severity

_ERROR, _WARNING, _INFO = Severity.ERROR, Severity.WARNING, Severity.INFO


class Rule(msgspec.Struct, frozen=True, kw_only=True):
    """One rule. Texts are sentences for people who meet it for the first time."""

    id: str
    severity: Severity
    """By default; the meaning says when it differs."""
    title: str
    meaning: str
    fix: str = ""
    """What ``polyarch fix`` does; empty: nothing."""
    flag: str = ""
    """The flag without which it does not."""
    subs: tuple[str, ...] = ()
    """The values that ``sub`` can have, where they are fixed."""
    default: bool = True
    """Runs without being configured or included."""
    upstream: str = ""
    """The number of the check of operator-sdk's validator that this one stands for (MF-075)."""


_TABLE = (
    Rule(
        id="MA001",
        severity=_WARNING,
        title="The platforms of an image are not known",
        meaning="The registry could not be asked, refused, or does not say; or the text names no image. Rules that "
        "need the platforms of every image stay silent about the pod. An error with --strict.",
        upstream="V1",
    ),
    Rule(
        id="MA002",
        severity=_ERROR,
        title="An image is built for one platform only",
        meaning="The image has exactly one platform that nodes can have, and --require names one that it is not.",
    ),
    Rule(
        id="MA003",
        severity=_ERROR,
        title="An image lacks a required platform",
        meaning="--require names a platform that the image is not built for.",
    ),
    Rule(
        id="MA004",
        severity=_WARNING,
        title="An image is pinned to one platform of a multi-platform image",
        meaning="The digest is that of one entry of the index that the tag shows, so every other platform is lost.",
        fix="The digest becomes that of the index.",
    ),
    Rule(
        id="MA005",
        severity=_ERROR,
        title="An image says one platform and contains another",
        meaning="With --deep: an entry of the index names another platform than its config (mislabelled), or its "
        "program is built for another machine (wrong-binary).",
        subs=("mislabelled", "wrong-binary"),
    ),
    Rule(
        id="MA006",
        severity=_ERROR,
        title="An index has no platform, or one twice",
        meaning="Nothing in the index can run (no-platforms), or two entries have the same platform, of which the "
        "first is taken (duplicate-platform, a warning).",
        subs=("no-platforms", "duplicate-platform"),
    ),
    Rule(
        id="MA007",
        severity=_WARNING,
        title="An image names no operating system",
        meaning="Its config has an empty os. It is taken as linux; other tools may refuse it.",
    ),
    Rule(
        id="MA008",
        severity=_ERROR,
        title="An image changed since it was locked",
        meaning="The tag shows another digest than the lock file. An error if a platform was lost, else a warning.",
        fix="polyarch lint --update-lock accepts what the tag shows now.",
        flag="--update-lock",
        subs=("lost-platform", "moved"),
        default=False,
    ),
    Rule(
        id="MA009",
        severity=_INFO,
        title="An image needs more than a node's labels tell",
        meaning="A platform of the image has a variant or an OS version. kubernetes.io/arch and kubernetes.io/os do "
        "not show them, so the scheduler cannot respect them.",
    ),
    Rule(
        id="MA010",
        severity=_ERROR,
        title="An image has a format that nodes no longer read",
        meaning="Schema 1 manifests and unknown media types are refused by today's container runtimes.",
    ),
    Rule(
        id="MA011",
        severity=_INFO,
        title="An image has an architecture in its name",
        meaning="Such names are often one of several images that a multi-architecture image without the suffix "
        "collects.",
    ),
    Rule(
        id="MA101",
        severity=_WARNING,
        title="A pod may land where its images do not run",
        meaning="There is no architecture constraint and some platform of the universe is not supported by every "
        "image. An error if the universe is given with --platforms.",
        fix="Required node affinity with the architectures and systems that all images support.",
    ),
    Rule(
        id="MA102",
        severity=_ERROR,
        title="A pod asks for platforms that its images lack",
        meaning="The architecture constraints admit a platform that some image is not built for.",
        fix="Values that no image has are removed; where that is not enough, an In expression is added.",
    ),
    Rule(
        id="MA103",
        severity=_INFO,
        title="A pod leaves out platforms that its images support",
        meaning="The architecture constraints exclude a platform of the universe that every image is built for.",
        fix="The missing architectures are added to the In lists.",
        flag="--widen",
    ),
    Rule(
        id="MA104",
        severity=_ERROR,
        title="A pod asks only for platforms that its images lack",
        meaning="What the pod admits and what its images support have nothing in common: it can run nowhere.",
        fix="The architectures asked for are replaced by those supported.",
        flag="--replace",
    ),
    Rule(
        id="MA105",
        severity=_ERROR,
        title="The images of a pod have no platform in common",
        meaning="Each image runs somewhere, but there is no platform for all of them; or one image has none at all.",
    ),
    Rule(
        id="MA106",
        severity=_INFO,
        title="A pod names architectures and no operating system",
        meaning="kubernetes.io/arch says nothing about the system: amd64 is windows, too. A warning if the universe "
        "has another system than linux.",
        fix="An In expression on kubernetes.io/os in each term.",
    ),
    Rule(
        id="MA107",
        severity=_ERROR,
        title="Node affinity terms do not say what they seem to",
        meaning="Terms are alternatives. One without an architecture expression beside others with it lets every "
        "architecture in (mixed); an empty one matches no node (empty-term, a warning unless all are empty); without "
        "any the API server refuses the pod (no-terms).",
        fix="mixed: the expressions are added to the terms without. no-terms: a term is added.",
        subs=("mixed", "empty-term", "no-terms"),
    ),
    Rule(
        id="MA108",
        severity=_WARNING,
        title="A deprecated node label",
        meaning="beta.kubernetes.io/arch and beta.kubernetes.io/os are replaced by the labels without beta.",
        fix="The key is renamed, unless both spellings stand side by side.",
    ),
    Rule(
        id="MA109",
        severity=_INFO,
        title="A node selector leaves out platforms that the images support",
        meaning="As MA103, where only nodeSelector names the architecture. It can name one; node affinity can name "
        "several.",
        fix="The entry of nodeSelector becomes required node affinity with every supported architecture.",
        flag="--widen",
    ),
    Rule(
        id="MA110",
        severity=_ERROR,
        title="An unknown architecture or operating system",
        meaning="No node has such a label. Often it is another name for one: x86_64 for amd64, aarch64 for arm64.",
        fix="Another name or case is replaced by the name that nodes use; a repetition goes.",
    ),
    Rule(
        id="MA111",
        severity=_ERROR,
        title="A preferred term that does not work",
        meaning="The weight is missing or not between 1 and 100 (weight); expressions stand beside preference "
        "instead of in it (shape); it prefers an architecture that the images lack (unsupported, a warning).",
        fix="The weight is clamped, 1 if missing; expressions are wrapped, with weight 50 if there is none; "
        "unsupported values go.",
        subs=("weight", "shape", "unsupported"),
    ),
    Rule(
        id="MA112",
        severity=_INFO,
        title="A configured preference is missing",
        meaning="The configuration prefers an architecture, the images support it, and no preferred term names it.",
        fix="A preferred term with the configured weight.",
        flag="--prefer",
        default=False,
    ),
    Rule(
        id="MA113",
        severity=_WARNING,
        title="A DaemonSet does not tolerate the taint of an architecture it supports",
        meaning="The configuration says that nodes of some architectures are tainted. A DaemonSet without the "
        "toleration leaves them out.",
        fix="The tolerations are added.",
        default=False,
    ),
    Rule(
        id="MA114",
        severity=_INFO,
        title="An init container limits where the pod can run",
        meaning="An init container or sidecar has fewer platforms than the ordinary containers together.",
    ),
    Rule(
        id="MA115",
        severity=_ERROR,
        title="spec.os.name contradicts the images or the node constraints",
        meaning="The kubelet refuses a pod with another spec.os.name than its node's.",
    ),
    Rule(
        id="MA116",
        severity=_INFO,
        title="An image passed by variable or argument has fewer platforms than the pod",
        meaning="What an operator starts from RELATED_IMAGE_*, *_IMAGE or --*image= cannot run everywhere that the "
        "operator can.",
        default=False,
    ),
    Rule(
        id="MA117",
        severity=_ERROR,
        title="An obsolete polyarch or multiarch object",
        meaning="PodPlacementConfig of multiarch.openshift.io/v1alpha1 was the cluster-wide configuration of a "
        "preview. ClusterPodPlacementConfig v1beta1 replaces it.",
        fix="The object is rewritten, with a PlacementPolicy that keeps the exclusions of the preview.",
    ),
    Rule(
        id="MA201",
        severity=_ERROR,
        title="A bundle promises an architecture or system that an image lacks",
        meaning="A label operatorframework.io/arch.* or os.* says supported, and an image of the bundle has no such "
        "platform.",
        fix="The label is removed.",
        flag="--remove-labels",
        upstream="V2",
    ),
    Rule(
        id="MA202",
        severity=_WARNING,
        title="A bundle supports more than it promises",
        meaning="Every image has an architecture or system without a label, so catalogues hide the operator there.",
        fix="The labels are added, with the implicit ones that adding removes.",
        upstream="V3",
    ),
    Rule(
        id="MA203",
        severity=_ERROR,
        title="A label of a bundle does not say what it seems to",
        meaning="The name after the prefix is unknown, or the value is not supported; with the prefix in use and "
        "nothing supported the operator is shown nowhere (hidden).",
        fix="Another name or case is replaced by the right one.",
        subs=("unknown", "value", "hidden"),
    ),
    Rule(
        id="MA204",
        severity=_WARNING,
        title="An image of a bundle lacks an architecture of the manager",
        meaning="The manager runs on an architecture without a label, another image of the bundle does not.",
        upstream="V4",
    ),
    Rule(
        id="MA205",
        severity=_ERROR,
        title="A deployment of a bundle and its images disagree",
        meaning="One of MA101, MA102, MA103, MA106, MA107 and MA109 in a deployment of a ClusterServiceVersion; sub "
        "names it and its severity holds.",
        fix="As the rule that sub names.",
        subs=("MA101", "MA102", "MA103", "MA106", "MA107", "MA109"),
        upstream="V5",
    ),
    Rule(
        id="MA206",
        severity=_WARNING,
        title="relatedImages and the images used differ",
        meaning="An image of a deployment or a RELATED_IMAGE_* variable is missing, so mirrors do not copy it "
        "(missing); or one is listed and used nowhere (stale, info).",
        fix="The missing entry is added.",
        subs=("missing", "stale"),
    ),
    Rule(
        id="MA207",
        severity=_INFO,
        title="An image of a bundle is not pinned to an index",
        meaning="It is named by tag (tag), or by the digest of one platform only (child, a warning).",
        fix="The digest of the index is written.",
        subs=("tag", "child"),
    ),
    Rule(
        id="MA208",
        severity=_INFO,
        title="A bundle image has platforms",
        meaning="Bundles are data; catalogue tools expect one platform, linux/amd64.",
    ),
    Rule(
        id="MA209",
        severity=_ERROR,
        title="A subscription's overrides remove an architecture constraint",
        meaning="OLM replaces node affinity and node selectors as a whole, and an empty podAntiAffinity removes all "
        "affinity.",
        fix="What would be lost is written into the override.",
        subs=("replaces-node-affinity", "anti-affinity-erases", "node-selector-drops"),
    ),
    Rule(
        id="MA210",
        severity=_INFO,
        title="A newer bundle has fewer labels than an older one",
        meaning="In a catalogue: the head of the default channel lacks labels that an older bundle of it has.",
    ),
    Rule(
        id="MA211",
        severity=_ERROR,
        title="An index names manifests that its registry does not have",
        meaning="Nodes of that platform cannot pull the image; usually a mirror copied only one platform.",
    ),
    Rule(
        id="MA301",
        severity=_WARNING,
        title="A Dockerfile is bound to one platform",
        meaning="It sets GOARCH to a fixed value, pins the platform of a stage, or starts from the digest of one "
        "platform.",
        fix="The fixed value becomes ${TARGETARCH}, declared in the stage; the digest becomes that of the index.",
        default=False,
    ),
    Rule(
        id="MA302",
        severity=_INFO,
        title="A build makes fewer platforms than the bundle promises",
        meaning="A Makefile or workflow builds for one platform while a ClusterServiceVersion of the tree labels more.",
        default=False,
    ),
    Rule(
        id="MA303",
        severity=_INFO,
        title="Code makes pods without node affinity",
        meaning="A Go file constructs a PodSpec and never NodeAffinity: operands made there may land anywhere.",
        default=False,
    ),
    Rule(
        id="MA901",
        severity=_INFO,
        title="A template",
        meaning="The file is no plain YAML but a template; nothing in it is looked at, since guessing would be wrong.",
    ),
    Rule(
        id="MA902",
        severity=_ERROR,
        title="A file does not parse",
        meaning="The text is no YAML (syntax), or a key stands twice where it matters (duplicate-key).",
        subs=("syntax", "duplicate-key"),
    ),
    Rule(
        id="MA903",
        severity=_INFO,
        title="A suppression that matches nothing",
        meaning="A comment, an annotation or an entry of the baseline suppresses a finding that is not there.",
    ),
    Rule(
        id="MA904",
        severity=_ERROR,
        title="An edit could not be proven",
        meaning="The edited text does not parse to what was meant. The file was left as it is; please report it.",
    ),
)

RULES: Mapping[str, Rule] = MappingProxyType({rule.id: rule for rule in _TABLE})
"""All rules by id, in order."""
