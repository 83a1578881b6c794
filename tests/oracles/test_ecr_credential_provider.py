"""Amazon's ``ecr-credential-provider``, as the guide configures it, against a stand-in of Amazon's services.

The program finds its identity as in a pod of EKS: by the token of IRSA, by EKS Pod Identity, or by variables. The
stand-in sees with which one it asks.
"""

import base64
import re
import time
from collections.abc import AsyncIterator, Callable
from pathlib import Path

import pytest
import yaml
from aiohttp import web

from polyarch.oci.auth.credential_plugins import ProviderCredentials
from polyarch.oci.auth.credentials import ANONYMOUS
from polyarch.oci.pull_sources import Configuration, PullSource, sources
from polyarch.oci.reference import Reference, parse
from polyarch.operator.registry_settings import providers_of

pytestmark = pytest.mark.req("IN-042", "RG-086")
GUIDE = Path(__file__).parents[2] / "docs" / "guide" / "eks.md"
REGISTRY = "123456789012.dkr.ecr.eu-central-1.amazonaws.com"
ASSUMED = """\
<AssumeRoleWithWebIdentityResponse xmlns="https://sts.amazonaws.com/doc/2011-06-15/">
<AssumeRoleWithWebIdentityResult><Credentials><AccessKeyId>IRSA</AccessKeyId><SecretAccessKey>s</SecretAccessKey>
<SessionToken>t</SessionToken><Expiration>2100-01-01T00:00:00Z</Expiration></Credentials>
</AssumeRoleWithWebIdentityResult></AssumeRoleWithWebIdentityResponse>
"""


class Amazon:
    """ECR, STS and the agent of EKS Pod Identity, as far as the program asks them."""

    def __init__(self) -> None:
        self.asked_by: list[str] = []
        """The key with which each request to ECR was signed."""
        self.refuses = False
        self.url = ""

    async def answer(self, request: web.Request) -> web.Response:
        if request.path == "/pod-identity":
            assert request.headers["Authorization"] == "pod's token"
            keys = {"AccessKeyId": "POD-IDENTITY", "SecretAccessKey": "s", "Token": "t"}
            return web.json_response({**keys, "Expiration": "2100-01-01T00:00:00Z"})
        if "Action=AssumeRoleWithWebIdentity" in (body := await request.text()):
            assert "role%2Fpolyarch" in body
            return web.Response(text=ASSUMED, content_type="text/xml")
        assert request.headers["X-Amz-Target"].endswith(".GetAuthorizationToken")
        if self.refuses:
            return web.json_response({"__type": "AccessDeniedException"}, status=400)
        self.asked_by.append(re.findall(r"Credential=([^/]+)/", request.headers["Authorization"])[0])
        token = base64.b64encode(b"AWS:password").decode()
        data = {"authorizationToken": token, "expiresAt": time.time() + 43_200, "proxyEndpoint": f"https://{REGISTRY}"}
        return web.json_response({"authorizationData": [data]}, content_type="application/x-amz-json-1.1")


@pytest.fixture
async def amazon() -> AsyncIterator[Amazon]:
    service, application = Amazon(), web.Application()
    application.router.add_route("*", "/{path:.*}", service.answer)
    runner = web.AppRunner(application)
    await runner.setup()
    try:
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        host, port = runner.addresses[0][:2]
        service.url = f"http://{host}:{port}"
        yield service
    finally:
        await runner.cleanup()


def credentials(program: str, amazon: Amazon, **environ: str) -> ProviderCredentials:
    """As a role has them with the values of the guide."""
    (values,) = re.findall(r"```yaml values.yaml\n(.*?)```", GUIDE.read_text(), re.DOTALL)
    text = yaml.safe_load(values)["registries"]["credentialProviders"]["configuration"]
    configuration = providers_of(text.encode(), directory=str(Path(program).parent), origin="the guide")
    services = {"AWS_ENDPOINT_URL": amazon.url, "AWS_ENDPOINT_URL_STS": amazon.url, "AWS_EC2_METADATA_DISABLED": "true"}
    return ProviderCredentials(configuration, environ={"PATH": "/usr/bin:/bin", **services, **environ})


def source_of(image: str) -> tuple[Reference, PullSource]:
    reference = parse(image)
    return reference, sources(reference, Configuration())[0]


@pytest.mark.parametrize("identity", ["IRSA", "POD-IDENTITY", "variables"])
async def test_the_program_gives_credentials_for_the_identity_of_the_pod(
    identity: str, peer: Callable[[str], str], amazon: Amazon, tmp_path: Path
) -> None:
    """Once for a registry, whatever its repositories; and not for the images of others."""
    token = tmp_path / "token"
    token.write_text("pod's token")
    environ = {
        "IRSA": {
            "AWS_ROLE_ARN": "arn:aws:iam::123456789012:role/polyarch",
            "AWS_WEB_IDENTITY_TOKEN_FILE": str(token),
            "AWS_REGION": "eu-central-1",
        },
        "POD-IDENTITY": {
            "AWS_CONTAINER_CREDENTIALS_FULL_URI": f"{amazon.url}/pod-identity",
            "AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE": str(token),
        },
        "variables": {"AWS_ACCESS_KEY_ID": "variables", "AWS_SECRET_ACCESS_KEY": "s"},
    }
    found = credentials(peer("ecr-credential-provider"), amazon, **environ[identity])
    for repository in ("team/app", "team/other"):
        (credential, last) = await found.candidates(*source_of(f"{REGISTRY}/{repository}:1"))
        assert (credential.username, credential.password, last) == ("AWS", "password", ANONYMOUS)
    assert amazon.asked_by == [identity]
    assert await found.candidates(*source_of("registry.example.com/team/app:1")) == [ANONYMOUS]


async def test_an_identity_that_amazon_refuses_is_told_and_not_asked_for_again_at_once(
    peer: Callable[[str], str], amazon: Amazon
) -> None:
    amazon.refuses = True
    keys = {"AWS_ACCESS_KEY_ID": "variables", "AWS_SECRET_ACCESS_KEY": "s"}
    found = credentials(peer("ecr-credential-provider"), amazon, **keys)
    reference, source = source_of(f"{REGISTRY}/team/app:1")
    assert await found.candidates(reference, source) == [ANONYMOUS]
    (warning,) = found.warnings(source)
    assert (
        warning.message == "credential provider ecr-credential-provider ended with status 1; run it by hand to see why"
    )
    amazon.refuses = False
    assert await found.candidates(reference, source) == [ANONYMOUS], "it rests"
    assert amazon.asked_by == []
