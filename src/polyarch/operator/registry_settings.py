"""What is said of registries, looked at before a role would refuse it as it starts.

A role that cannot use its settings ends, and Kubernetes starts it again and again. So who hands the settings on looks
at them first: the installer before it writes anything, the operator before it changes a Deployment. Both use what the
roles read them with, so nothing can be right here and wrong there.

Most installations say nothing of registries: what reads these settings is imported only where there is something."""

import base64
from collections.abc import Iterable, Mapping
from typing import Any, Final

CONFIGURATION: Final = "registries.conf"
AUTHORITIES: Final = "ca.crt"
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


def wrong_files(files: Mapping[str, bytes], origin: str) -> tuple[str, ...]:
    """A problem for each wrong file of a ConfigMap, which ``origin`` names."""
    looks = {CONFIGURATION: wrong_configuration, AUTHORITIES: wrong_authorities}
    found = (looks[name](files[name], f"{origin}: {name}") for name in looks if name in files)
    return tuple(problem for problem in found if problem)
