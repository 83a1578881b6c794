"""What is said of registries, looked at before a role would refuse it as it starts.

A role that cannot use its settings ends, and Kubernetes starts it again and again. So who hands the settings on looks
at them first: the installer before it writes anything, the operator before it changes a Deployment. Both use what the
roles read them with, so nothing can be right here and wrong there.

Most installations say nothing of registries: what reads these settings is imported only where there is something."""

import base64
import re
from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final

import msgspec

if TYPE_CHECKING:
    from polyarch.oci.auth.credential_plugins import ProviderConfiguration

CONFIGURATION: Final = "registries.conf"
AUTHORITIES: Final = "ca.crt"
PROVIDERS: Final = "credential-providers.yaml"
"""Keys of the ConfigMap."""


def files_in(config_map: Mapping[str, Any]) -> dict[str, bytes]:
    """The files of a ConfigMap."""
    texts, encoded = (config_map.get(field) or {} for field in ("data", "binaryData"))
    files = {name: text.encode() for name, text in texts.items()}
    return files | {name: base64.b64decode(text) for name, text in encoded.items()}


def wrong_range(text: str) -> str:
    """What is wrong with an address range; empty: nothing."""
    from polyarch.oci.transport.addresses import InvalidSetting, parse_range

    try:
        parse_range(text)
    except InvalidSetting as error:
        return str(error)
    return ""


def wrong_ranges(allowed: Iterable[str], denied: Iterable[str] = ()) -> tuple[str, ...]:
    """A problem for each of the operator's address ranges that is none."""
    return tuple(
        f"registries.{verb}Addresses (flag --{verb}-address): {wrong}"
        for verb, texts in (("allow", allowed), ("deny", denied))
        for wrong in map(wrong_range, texts)
        if wrong
    )


def wrong_configuration(content: bytes, origin: str) -> str:
    """What is wrong with a ``registries.conf``, beginning with ``origin``; empty: nothing."""
    from polyarch.oci.mirror_files import InvalidMirrorConfiguration, parse_registries_conf, table_of

    try:
        parse_registries_conf(table_of(content, origin))
    except InvalidMirrorConfiguration as error:
        return str(error)
    return ""


def wrong_authorities(content: bytes, origin: str) -> str:
    """What is wrong with CA certificates, beginning with ``origin``; empty: nothing."""
    from polyarch.oci.transport.addresses import InvalidSetting
    from polyarch.oci.transport.tls import check_certificates

    try:
        check_certificates(content.decode("ascii", "ignore"))
    except InvalidSetting:
        return f"{origin}: holds no PEM certificates, or a damaged one"
    return ""


def providers_of(content: bytes, *, directory: str, origin: str) -> "ProviderConfiguration":
    """A ``CredentialProviderConfig`` of YAML or JSON, and the directory of its plugins. Raises
    ``InvalidProviderConfiguration``, which names what is wrong."""
    from polyarch.oci.auth.credential_plugins import InvalidProviderConfiguration, ProviderConfiguration

    try:
        data = msgspec.json.decode(content)  # spares roles the YAML library
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        import yaml

        from polyarch.yaml_loader import SafeLoader

        try:
            data = yaml.load(content, SafeLoader)  # noqa: S506 - safe
        except (yaml.YAMLError, ValueError, RecursionError) as error:
            mark = getattr(error, "problem_mark", None)
            where = f" at line {mark.line + 1}" if mark is not None else ""
            raise InvalidProviderConfiguration(origin, "", f"is neither YAML nor JSON{where}") from None
    return ProviderConfiguration.from_mapping(data, directory=directory, origin=origin)


def wrong_providers(content: bytes, origin: str) -> str:
    """What is wrong with a ``CredentialProviderConfig``, beginning with ``origin``; empty: nothing."""
    from polyarch.oci.auth.credential_plugins import InvalidProviderConfiguration

    try:
        providers_of(content, directory="/", origin=origin)
    except InvalidProviderConfiguration as error:
        return str(error)
    return ""


def wrong_providers_place(image: str, directory: str, mount: str) -> str:
    """Why pods cannot have plugins from there, beginning with the setting; empty: they can, or there is none."""
    if directory and (re.fullmatch(r"/[A-Za-z0-9._@%+,:=/-]+", directory) is None or not directory.strip("/")):
        return f"directory {directory}: expected an absolute path below /, without spaces or quotes"
    if ".." in directory.split("/"):
        return f"directory {directory}: expected a path without '..'"
    if mount == "hostPath" and (image or not directory):
        return "mount hostPath: expected the nodes' directory with the plugins, and no image"
    if mount in ("imageVolume", "copy") and not image:
        return f"mount {mount}: expected an image with the plugins"
    return ""


def wrong_files(files: Mapping[str, bytes], origin: str) -> tuple[str, ...]:
    """A problem for each wrong file of a ConfigMap, which ``origin`` names."""
    looks = {CONFIGURATION: wrong_configuration, AUTHORITIES: wrong_authorities, PROVIDERS: wrong_providers}
    found = (looks[name](files[name], f"{origin}: {name}") for name in looks if name in files)
    return tuple(problem for problem in found if problem)
