"""The MachineOSConfigs of a facts file, as cases and facts of the builder's planner (BD-003).

Their kinds are taken as they stand in the file, since names of builds are made of whole objects. What belongs to others
(CustomResourceDefinitions, say) is passed over.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from polyarch.builds import names
from polyarch.builds.facts.build_facts import BuildFacts
from polyarch.builds.facts.offline import FactsFile
from polyarch.builds.machineos import api
from polyarch.builds.machineos.api import (
    Document,
    ExecutionConfigMap,
    MachineOSConfigFacts,
    controlled_by,
    name_of,
    uid_of,
)
from polyarch.builds.machineos.job_objects import trust_bundle
from polyarch.builds.machineos.records import EXECUTION_FILE
from polyarch.builds.machineos.request import Pool, machine_facts, pool_nodes
from polyarch.kube.resources import Resource
from polyarch.selectors import LabelSelector


def machine_cases(known: FactsFile) -> Iterator[tuple[MachineOSConfigFacts, BuildFacts]]:
    """Every MachineOSConfig of the file, by name, before any question is answered."""
    pools = _of_kind(known, api.POOLS)
    selectors = [_pool(each) for each in pools.values()]
    jobs = known.jobs()
    for _, config in sorted(_of_kind(known, api.CONFIGS).items()):
        case = _case(known, config, pools)
        facts = machine_facts(
            case,
            pool_nodes(case.pool_name, selectors, known.nodes),
            known.nodes,
            jobs=[each for each in jobs if each.namespace == case.namespace],
            settings=known.settings,
            now=known.now,
            active_jobs=sum(each.complete is None and each.failure is None for each in jobs),
        )
        yield case, facts


def _case(known: FactsFile, config: Document, pools: Mapping[str, Document]) -> MachineOSConfigFacts:
    case = MachineOSConfigFacts(namespace=api.NAMESPACE, config=config)
    case = msgspec.structs.replace(case, pool=pools.get(case.pool_name))
    return msgspec.structs.replace(
        case,
        rendered=_of_kind(known, api.RENDERED).get(case.rendered_name),
        trust=_trust(known),
        builds=controlled_by(_of_kind(known, api.BUILDS).values(), uid_of(config)),
        records=tuple(_records(known, case.name)),
    )


def _trust(known: FactsFile) -> str:
    found = _of_kind(known, api.CONTROLLER_CONFIGS).get(api.CONTROLLER_CONFIG) or {}
    return trust_bundle(str((found.get("spec") or {}).get("additionalTrustBundle") or "")) or ""


def _records(known: FactsFile, config: str) -> Iterator[ExecutionConfigMap]:
    for found in known.documents:
        metadata: Mapping[str, Any] = found.document.get("metadata") or {}
        notes = metadata.get("annotations") or {}
        if found.kind != "ConfigMap" or notes.get(api.CONFIG_LABEL) != config:
            continue
        data: Mapping[str, str] = found.document.get("data") or {}
        yield ExecutionConfigMap(
            name=name_of(found.document),
            build=notes.get(names.RUN_LABEL) or (metadata.get("labels") or {}).get(names.RUN_LABEL, ""),
            owners=frozenset(str(each.get("uid")) for each in metadata.get("ownerReferences") or ()),
            architectures=data.get(names.ARCHITECTURES_FILE, ""),
            execution=data.get(EXECUTION_FILE, ""),
        )


def _of_kind(known: FactsFile, kind: Resource) -> dict[str, Document]:
    return {
        name_of(each.document): each.document
        for each in known.documents
        if each.kind == kind.kind and each.document.get("apiVersion", kind.api_version) == kind.api_version
    }


def _pool(document: Document) -> Pool:
    selector = (document.get("spec") or {}).get("nodeSelector")
    return Pool(name_of(document), msgspec.convert(selector, LabelSelector) if selector is not None else None)
