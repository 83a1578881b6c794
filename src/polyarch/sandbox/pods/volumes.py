"""What is in the files of a pod's volumes (SB-011). Pure: from objects to names and contents.

Volumes of one ConfigMap, Secret or downwardAPI are treated as a projection of this one source.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import PurePosixPath

import msgspec

from polyarch.sandbox.pods import environment
from polyarch.sandbox.pods.environment import Facts, Missing
from polyarch.sandbox.pods.spec import (
    DownwardVolume,
    KeyToPath,
    PodDocument,
    SecretProjection,
    Source,
    TokenProjection,
    Volume,
)

DEFAULT_MODE = 0o644


class File(msgspec.Struct, frozen=True):
    """A file of a volume: its content and mode."""

    content: bytes
    mode: int = DEFAULT_MODE

    def __repr__(self) -> str:
        return f"File({len(self.content)} bytes, {self.mode:o})"


def projection(volume: Volume) -> tuple[Sequence[Source], int] | None:
    """The volume's sources and the mode of its files; None if the API server's objects do not fill it."""
    if (projected := volume.projected) is not None:
        return projected.sources or (), projected.default_mode or DEFAULT_MODE
    if (config_map := volume.config_map) is not None:
        return (Source(config_map=config_map),), config_map.default_mode or DEFAULT_MODE
    if (secret := volume.secret) is not None:
        one = SecretProjection(secret.secret_name, secret.items, secret.optional)
        return (Source(secret=one),), secret.default_mode or DEFAULT_MODE
    if (downward := volume.downward_api) is not None:
        return (Source(downward_api=downward),), downward.default_mode or DEFAULT_MODE
    return None


def _sources(pod: PodDocument) -> Iterator[Source]:
    for volume in pod.spec.volumes or ():
        found = projection(volume)
        yield from found[0] if found is not None else ()


def references(pod: PodDocument) -> tuple[set[str], set[str]]:
    """The names of the ConfigMaps and of the Secrets that are mounted."""
    found = list(_sources(pod))
    return (
        {each.config_map.name for each in found if each.config_map is not None},
        {each.secret.name for each in found if each.secret is not None},
    )


def tokens(pod: PodDocument) -> list[TokenProjection]:
    """The tokens that are mounted."""
    return [each.service_account_token for each in _sources(pod) if each.service_account_token is not None]


def token_path(pod: PodDocument) -> tuple[str, str] | None:
    """(volume, path) of the first token for the API server itself; None if the pod has none."""
    for volume in pod.spec.volumes or ():
        found = projection(volume)
        for source in found[0] if found is not None else ():
            if (token := source.service_account_token) is not None and not token.audience:
                return volume.name, token.path
    return None


def files(volume: Volume, facts: Facts) -> dict[str, File]:
    """The volume's files by path; Missing if a source that is not optional is not there."""
    found = projection(volume)
    result: dict[str, File] = {}
    for source in found[0] if found is not None else ():
        mode = found[1] if found is not None else DEFAULT_MODE
        result |= {_inside(path): file for path, file in _files(source, facts, mode).items()}
    return result


def _files(source: Source, facts: Facts, mode: int) -> dict[str, File]:
    if (one := source.config_map) is not None:
        config_map = facts.config_maps.get(one.name)
        content = None if config_map is None else config_map.content
        return _selected("configmap", one.name, content, one.items, mode, optional=bool(one.optional))
    if (other := source.secret) is not None:
        secret = facts.secrets.get(other.name)
        content = None if secret is None else environment.secret_content(secret)
        return _selected("secret", other.name, content, other.items, mode, optional=bool(other.optional))
    if (token := source.service_account_token) is not None:
        # A kubelet gives tokens mode 0600 to the pod's user; here there is one user.
        return {token.path: File(facts.tokens[token.audience, token.expiration_seconds].encode(), 0o600)}
    if (downward := source.downward_api) is not None:
        return _downward(downward, facts, mode)
    return {}


def _selected(
    kind: str,
    name: str,
    content: Mapping[str, bytes] | None,
    items: Sequence[KeyToPath] | None,
    mode: int,
    *,
    optional: bool,
) -> dict[str, File]:
    if content is None and not optional:
        raise Missing(f'{kind} "{name}" not found')
    content = content or {}
    if not items:
        return {key: File(data, mode) for key, data in content.items()}
    chosen: dict[str, File] = {}
    for item in items:
        if item.key in content:
            chosen[item.path] = File(content[item.key], item.mode or mode)
        elif not optional:
            raise Missing(f"{kind} references non-existent {kind} key: {item.key}")
    return chosen


def _downward(volume: DownwardVolume, facts: Facts, mode: int) -> dict[str, File]:
    found: dict[str, File] = {}
    for item in volume.items or ():
        if item.field_ref is not None:
            text = environment.field(item.field_ref.field_path, facts)
        elif item.resource_field_ref is not None:
            text = environment.resource(item.resource_field_ref, facts.pod)
        else:
            continue
        found[item.path] = File(text.encode(), item.mode or mode)
    return found


def _inside(path: str) -> str:
    """The API server refuses ``..`` in such paths; checked again, because we write to this machine's disk."""
    if PurePosixPath(path).is_absolute() or ".." in PurePosixPath(path).parts:
        raise Missing(f"path {path!r} leads out of the volume")
    return path
