"""Every object of the exporters for these groups, in the order of applying (§5). Pure.

One list drives creation and deletion, so that what can be made cannot be forgotten.
"""

from collections.abc import Collection, Mapping, Sequence

from polyarch.kube.owners import Owner
from polyarch.numa.operator.exporters import certificate, config_map, daemon_set, network, openshift, rights
from polyarch.numa.operator.exporters.surroundings import Surroundings
from polyarch.numa.operator.groups import Group
from polyarch.operating.labels import Document, finished, owned


def documents(
    groups: Sequence[Group],
    surroundings: Surroundings,
    *,
    kubelets: Mapping[str, Mapping[str, str]],
    without_pods: Collection[str] = (),
    owner: Owner | None,
) -> tuple[Document, ...]:
    """No groups, no objects. ``kubelets``: settings of the topology manager by group, where the cluster has them.
    ``without_pods``: groups whose machines are not ready for their exporters, and get them later."""
    if not groups:
        return ()
    made = [
        *(openshift.machine_config(group) for group in groups if openshift.is_legacy(group)),
        *openshift.constraints(surroundings),
        *rights.documents(surroundings),
        *certificate.issued(surroundings),
        network.service(surroundings),
        *network.network_policies(surroundings),
    ]
    for group in groups:
        configuration = config_map.config_map(group, surroundings, kubelets.get(group.name))
        made.append(configuration)
        if group.name not in without_pods:
            made.append(daemon_set.daemon_set(group, surroundings, config_digest=config_map.digest(configuration)))
    made += rights.node_policy(surroundings)
    return tuple(owned(finished(each), owner) for each in made)
