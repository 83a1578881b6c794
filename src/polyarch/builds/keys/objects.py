"""ConfigMaps and Secrets that a build names: found, of the right kind, and readable (BD-064, BD-331).

Every problem names the object, the field that names it, and what to do; none quotes content. They end by themselves
when the object changes, since the facts are read again then.
"""

from collections.abc import Mapping
from typing import Any

from polyarch.builds import names
from polyarch.builds.api.resources import Context, KeyReference, Output
from polyarch.builds.facts.facts import InputData, SecretFacts
from polyarch.builds.facts.problem import Problem

DEFAULT_KEY = "Containerfile"
NOT_ENABLED = "NamespaceNotEnabled"
"""The reason where the builder may not read the Secrets of a namespace."""
DOCKER_CONFIG = "kubernetes.io/dockerconfigjson"
MACHINE_DOCKER_CONFIGS = (DOCKER_CONFIG, "kubernetes.io/dockercfg")
"""A machine OS takes both shapes (BD-284)."""


class Objects:
    """Looks objects up and collects what is wrong with them."""

    def __init__(self, namespace: str, data: InputData, operator_namespace: str) -> None:
        self._namespace = namespace
        self._data = data
        self._operator_namespace = operator_namespace
        self._refused = False
        self.problems: list[Problem] = []
        self.unread: set[str] = set()
        """Secrets that nobody has read yet, since no key depends on what is in them."""

    def problem(self, reason: str, message: str, architecture: str = "") -> None:
        self.problems.append(Problem(reason=reason, message=message, architecture=architecture))

    def config_map(self, name: str, field: str) -> Mapping[str, Any] | None:
        found = self._data.config_maps.get(name)
        if found is None:
            self._missing(f"ConfigMap {self._namespace}/{name}", field)
        return found

    def text(self, wanted: KeyReference, field: str) -> str | None:
        """The text under a key of a ConfigMap; an empty key means ``Containerfile``."""
        found = self.config_map(wanted.name, field)
        if found is None:
            return None
        key = wanted.key or DEFAULT_KEY
        text = (found.get("data") or {}).get(key)
        if isinstance(text, str):
            return text
        what = f"key {key!r} of ConfigMap {self._namespace}/{wanted.name}"
        if key in (found.get("binaryData") or {}):
            self.problem("ContainerfileInvalid", f"{what}, which {field} names, is not text; expected it under data")
        else:
            self._missing(what, field, having=found.get("data") or {})
        return None

    def secret(self, wanted: KeyReference, field: str, *, keyed: bool) -> SecretFacts | None:
        """A Secret that has the key; ``keyed``: its content is part of a key, so it has to have been read."""
        found = self._secret(wanted.name, field, keyed=keyed)
        if found is not None and wanted.key not in found.keys:
            self._missing(f"key {wanted.key!r} of Secret {self._namespace}/{wanted.name}", field, having=found.keys)
            return None
        return found

    def credentials(self, output: Output, context: Context, *, machine: bool) -> None:
        """Secrets for registries and Git, which are not inputs, but have to be usable (BD-064)."""
        wanted = [("output.pushSecret.name", output.push_secret)]
        wanted += [(f"output.pullSecrets[{each.name}]", each) for each in output.pull_secrets or ()]
        types = MACHINE_DOCKER_CONFIGS if machine else (DOCKER_CONFIG,)
        for field, each in wanted:
            if each is None or not each.name:
                continue
            found = self._secret(each.name, field)
            if found is not None and not found.invalid and found.type not in types:
                message = f"Secret {self._namespace}/{each.name}, which {field} names, has the type {found.type!r}; "
                self.problem("SecretInvalid", f"{message}expected {' or '.join(types)}")
        if context.type == "Git" and context.git is not None and context.git.credentials is not None:
            self._secret(context.git.credentials.name, "source.context.git.credentials.name")

    def _secret(self, name: str, field: str, *, keyed: bool = False) -> SecretFacts | None:
        if not self._data.readable:
            self._refuse()
            return None
        if name not in self._data.secrets and not keyed:
            self.unread.add(name)
            return None
        found = self._data.secrets.get(name)
        if found is None:
            self._missing(f"Secret {self._namespace}/{name}", field)
        elif found.invalid:
            message = f"Secret {self._namespace}/{name}, which {field} names, cannot be used: {found.invalid}"
            self.problem("SecretInvalid", message)
        return found

    def _refuse(self) -> None:
        if not self._refused:
            self._refused = True
            self.problem(
                NOT_ENABLED,
                f"the builder may not read Secrets in namespace {self._namespace}; an administrator enables it with: "
                f"kubectl create rolebinding {names.NAMESPACE_ROLE} --namespace {self._namespace} "
                f"--clusterrole {names.NAMESPACE_ROLE} --serviceaccount {self._operator_namespace}:{names.ROLE}",
            )

    def _missing(self, what: str, field: str, having: Any = ()) -> None:
        there = f" (it has {', '.join(sorted(having)[:8])})" if having else ""
        self.problem(
            "InputMissing", f"{what}, which {field} names, does not exist{there}; create it or correct the name"
        )
