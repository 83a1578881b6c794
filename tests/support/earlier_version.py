"""An earlier polyarch without operator, as its manifests installed it: webhook and controller with a certificate that
somebody made, as its guide told."""

import asyncio
import base64
import datetime as dt
import subprocess
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import yaml

from polyarch.installation import apply, preflight
from polyarch.installation.objects import configuration, definitions
from polyarch.installation.settings import InstallationSettings
from polyarch.kube import x509
from polyarch.kube.client import Client
from polyarch.kube.patches import MergePatch
from polyarch.kube.resources import MUTATING_WEBHOOKS, SECRETS
from polyarch.kube.x509 import Purpose, Subject
from polyarch.names import DEFAULT_NAMESPACE
from polyarch.placement import names
from polyarch.sandbox.cluster import Sandbox

FOLDER = Path(__file__).parents[1] / "cluster" / "earlier"
REPLICAS = 2
Json = dict[str, Any]


def manifests(kubectl: str, image: str) -> list[Json]:
    """As they were, with another image and two replicas of each role."""
    text = subprocess.run([kubectl, "kustomize", str(FOLDER)], capture_output=True, text=True, check=True).stdout
    found = [each for each in yaml.safe_load_all(text) if each]
    for deployment in deployments(found):
        deployment["spec"]["replicas"] = REPLICAS
        for container in deployment["spec"]["template"]["spec"]["containers"]:
            container["image"] = image
    return found


def deployments(documents: Iterable[Json]) -> Iterator[Json]:
    return (each for each in documents if each["kind"] == "Deployment")


async def stand(
    sandbox: Sandbox, client: Client, settings: InstallationSettings, kubectl: str, found: list[Json]
) -> None:
    """Apply the manifests, after the definitions and the configuration of these settings."""
    early = [*definitions(settings), *configuration(settings)]
    await apply.apply_all(client, early, await preflight.gather(client, early))
    command = [kubectl, "--kubeconfig", str(sandbox.kubeconfig), "apply", "-f", "-"]
    text = yaml.safe_dump_all(found)
    done = await asyncio.to_thread(subprocess.run, command, input=text, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    now = dt.datetime.now(dt.UTC)
    made = x509.make_authority("authority of the user", now=now, lifetime=dt.timedelta(days=30))
    leaf = x509.issue(
        made,
        Subject("webhook"),
        now=now,
        lifetime=dt.timedelta(days=1),
        purposes=[Purpose.SERVER],
        names=[f"{names.WEBHOOK}.{DEFAULT_NAMESPACE}.svc"],
    )
    files = {"tls.crt": leaf.certificate_pem, "tls.key": leaf.key_pem}
    data = {name: base64.b64encode(content).decode() for name, content in files.items()}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": names.CERTIFICATES_SECRET}, "data": data}
    await client.create(SECRETS, secret, namespace=DEFAULT_NAMESPACE)
    authority = base64.b64encode(made.certificate_pem).decode()
    registered = await client.get(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION)
    webhooks = [
        each | {"clientConfig": each["clientConfig"] | {"caBundle": authority}} for each in registered["webhooks"]
    ]
    await client.patch(MUTATING_WEBHOOKS, names.WEBHOOK_CONFIGURATION, MergePatch({"webhooks": webhooks}))
