"""``polyarch install`` counts images that polyarch will not be able to read."""

from collections.abc import AsyncIterator
from typing import Any

import msgspec
import pytest
from aiohttp import web

from polyarch.cli.installation.install import images_check
from polyarch.installation.preflight import PreflightCheck
from polyarch.installation.settings import CredentialProviders, InstallationSettings, Registries, SecretName
from polyarch.kube.errors import Forbidden
from polyarch.kube.watch import Page
from polyarch.objects import Pod

pytestmark = pytest.mark.req("RP-017", "IN-002")
INDEX = {
    "schemaVersion": 2,
    "mediaType": "application/vnd.oci.image.index.v1+json",
    "manifests": [
        {
            "mediaType": "application/vnd.oci.image.manifest.v1+json",
            "digest": f"sha256:{'1' * 64}",
            "size": 1,
            "platform": {"os": "linux", "architecture": "arm64"},
        }
    ],
}
PROVIDERS = """\
apiVersion: kubelet.config.k8s.io/v1
kind: CredentialProviderConfig
providers:
  - {name: p, matchImages: ["%s/denied"], defaultCacheDuration: 1h,
     apiVersion: credentialprovider.kubelet.k8s.io/v1}
"""


async def answered(request: web.Request) -> web.Response:
    if "/denied/" in request.path:
        return web.Response(status=401)
    if "/forbidden/" in request.path:
        return web.Response(status=403)
    if "/gone/" in request.path:
        return web.Response(status=404)
    return web.json_response(INDEX, content_type=INDEX["mediaType"])


@pytest.fixture
async def registry() -> AsyncIterator[str]:
    """``host:port`` of a registry that answers by the first part of a repository."""
    application = web.Application()
    application.router.add_route("*", "/{path:.*}", answered)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        await web.TCPSite(runner, "127.0.0.1", 0).start()
        host, port = runner.addresses[0][:2]
        yield f"{host}:{port}"
    finally:
        await runner.cleanup()


class Pods:
    """Lists these pods."""

    def __init__(self, *pods: Pod, refused: bool = False) -> None:
        self.pods = list(pods)
        self.refused = refused

    async def list_page(self, *_: Any, **__: Any) -> Page[Pod]:
        if self.refused:
            raise Forbidden(403, reason="Forbidden", message="pods is forbidden")
        return Page(self.pods, "1")


def pod(*images: str, namespace: str = "shop", secrets: tuple[str, ...] = (), pull: str = "IfNotPresent") -> Pod:
    containers = [{"name": f"c{at}", "image": image, "imagePullPolicy": pull} for at, image in enumerate(images)]
    spec = {"containers": containers, "imagePullSecrets": [{"name": name} for name in secrets]}
    return msgspec.convert({"metadata": {"name": "p", "namespace": namespace}, "spec": spec}, Pod)


async def checked(registry: str, *pods: Pod, **values: Any) -> tuple[PreflightCheck, ...]:
    conf = f'[[registry]]\nlocation = "{registry}"\ninsecure = true\n'
    values = {"configuration": conf, "allow_addresses": ("127.0.0.0/8",), **values}
    return await images_check(Pods(*pods), InstallationSettings(registries=Registries(**values)))  # type: ignore[arg-type]


async def test_refused_absent_and_unreachable_images_are_counted_apart(registry: str) -> None:
    several = [f"{registry}/{name}/app:1" for name in ("denied", "forbidden", "gone", "fine")]
    (check,) = await checked(registry, pod(*several, "127.0.0.1:1/x/app:1"), pod(several[0]))
    assert check.outcome == "note"
    assert check.message == (
        "of 5 images of pods without a pull secret polyarch could not read 4: 2 refused (401 or 403), 1 not found, "
        "1 unreachable"
    )
    assert check.action.endswith("/docs/guide/placement.md#private-registries")


async def test_what_can_be_read_is_in_order(registry: str) -> None:
    (check,) = await checked(registry, pod(f"{registry}/fine/app:1"))
    assert (check.outcome, check.message) == ("ok", "the image without a pull secret can be read")


@pytest.mark.parametrize(
    "options",
    [{"secrets": ("pull",)}, {"namespace": "kube-system"}, {"namespace": "openshift-dns"}, {"pull": "Never"}],
    ids=str,
)
async def test_images_that_are_read_otherwise_or_not_at_all_do_not_count(registry: str, options: Any) -> None:
    assert await checked(registry, pod(f"{registry}/denied/app:1", **options)) == ()


async def test_images_that_a_plugin_or_a_global_pull_secret_may_open_do_not_count(registry: str) -> None:
    denied = pod(f"{registry}/denied/app:1")
    plugins = CredentialProviders(configuration=PROVIDERS % registry, image="plugins:1")
    assert await checked(registry, denied, credential_providers=plugins) == ()
    secret = SecretName(namespace="a", name="b")
    assert await checked(registry, denied, global_pull_secret=secret) == ()
    (check,) = await checked(registry, pod(f"{registry}/forbidden/app:1"), credential_providers=plugins)
    assert check.outcome == "note"


async def test_a_plugin_that_wants_tokens_of_pods_opens_nothing(registry: str) -> None:
    """It is never run."""
    token = "tokenAttributes: {serviceAccountTokenAudience: a, requireServiceAccount: true, cacheType: Token}"
    text = (PROVIDERS % registry).replace("defaultCacheDuration: 1h,", f"defaultCacheDuration: 1h, {token},")
    plugins = CredentialProviders(configuration=text, image="plugins:1")
    (check,) = await checked(registry, pod(f"{registry}/denied/app:1"), credential_providers=plugins)
    assert check.outcome == "note"


async def test_whoever_may_not_list_pods_is_told_nothing_of_images() -> None:
    found = await images_check(Pods(refused=True), InstallationSettings())  # type: ignore[arg-type]
    assert found == ()


async def test_a_cluster_without_pods_is_asked_for_nothing(registry: str) -> None:
    assert await checked(registry) == ()
    assert await checked(registry, pod("not an image")) == ()
