"""``polyarch numa export --verify``: are the fingerprints of saved objects those of saved pods?

Files are what ``kubectl get … -o yaml`` or ``-o json`` prints, or what the exporter and the kubelet answer."""

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec

from polyarch.cli.errors import UsageError
from polyarch.cli.input.objects import FileDocument, read_documents
from polyarch.cli.options.common import Output, emit
from polyarch.cli.output.documents import document_text
from polyarch.cli.output.tables import Row, table
from polyarch.numa.api.topology import TOPOLOGIES, NodeResourceTopology
from polyarch.numa.fingerprint import (
    ApiPod,
    FingerprintVerification,
    SavedPod,
    StatusFileContent,
    saved_pod_of_api,
    saved_pods_of_kubelet,
    saved_pods_of_status_file,
    verify_fingerprint,
)

SCHEMA_VERSION: Final = "polyarch.dev/numa-verify/v1"
HEADER: Final = ("NODE", "VERDICT", "FINGERPRINT", "NOTE")
LISTS: Final = ("pod_resources", "podResources")


def run_verify(objects: str, pods: str | None, wanted: Sequence[Output]) -> int:
    """Prints a verdict per node; 1 if one is not ok. Raises UsageError for files that cannot be judged."""
    topologies = _topologies(objects)
    by_node = None if pods is None else _pods(pods, [each.metadata.name for each in topologies])
    verdicts = [
        verify_fingerprint(each, None if by_node is None else by_node.get(each.metadata.name, ()))
        for each in topologies
    ]
    emit(wanted, lambda form, colour: _rendered(verdicts, form, colour=colour))
    return 0 if all(each.verdict == "ok" for each in verdicts) else 1


def _topologies(path: str) -> list[NodeResourceTopology]:
    found = [each.into(NodeResourceTopology) for each in read_documents(path) if each.kind == TOPOLOGIES.kind]
    if not found:
        raise UsageError(
            f"{path}: no {TOPOLOGIES.kind} in it; save them with: "
            f"kubectl get {TOPOLOGIES.plural}.{TOPOLOGIES.group} -o yaml"
        )
    return sorted(found, key=lambda each: each.metadata.name)


def _pods(path: str, nodes: Sequence[str]) -> Mapping[str, Sequence[SavedPod]]:
    """By node."""
    found: dict[str, list[SavedPod]] = defaultdict(list)
    for each in read_documents(path):
        if each.kind == "Pod":
            pod = each.into(ApiPod)
            found[pod.spec.node_name].append(saved_pod_of_api(pod))
        elif "fingerprintComputed" in each.content:
            status = each.into(StatusFileContent)
            found[status.node_name] += saved_pods_of_status_file(status)
        elif any(name in each.content for name in LISTS):
            if len(nodes) != 1:
                raise each.error(f"the list of one kubelet does not tell its node; --verify has {len(nodes)} of them")
            found[nodes[0]] += saved_pods_of_kubelet(_listed(each))
        elif each.kind != "PodList":  # an empty one has no items
            raise each.error("expected pods of the API, a fingerprint status file, or a kubelet's list (list.json)")
    return found


def _listed(document: FileDocument) -> Any:
    """The pods of a saved answer."""
    from google.protobuf.json_format import ParseDict, ParseError

    from polyarch.numa.host import podresources_pb2
    from polyarch.numa.host.podresources import listed_pods

    try:
        answer = ParseDict(document.content, podresources_pb2.ListPodResourcesResponse(), ignore_unknown_fields=True)
    except ParseError as error:
        raise document.error(str(error)) from None
    return listed_pods(answer)[0]


def _rendered(verdicts: Sequence[FingerprintVerification], form: str, *, colour: bool) -> str:
    if form != "text":
        nodes = [msgspec.structs.asdict(each) for each in verdicts]
        return document_text({"schemaVersion": SCHEMA_VERSION, "nodes": nodes}, form)
    styles = {"ok": "", "mismatch": "red"}
    lines = (
        Row((each.node, each.verdict, each.fingerprint, each.note), styles.get(each.verdict, "yellow"))
        for each in verdicts
    )
    return table(HEADER, lines, colour=colour)
