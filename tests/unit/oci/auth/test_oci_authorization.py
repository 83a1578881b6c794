"""How a registry is shown who asks."""

import asyncio
from urllib.parse import parse_qs

import pytest
from scripted_registry import Answer

from polyarch.oci.auth.credentials import ANONYMOUS, Credential, CredentialWarning
from polyarch.oci.inspection import Status

pytestmark = pytest.mark.req("RG-075")

ROBOT = Credential("robot", "password-of-robot", source="secret team/pull", key="r.example/team")
STRANGER = Credential("stranger", "password-of-nobody", source="secret team/old", key="r.example")
SECOND = Credential("second", "password-of-second", source="secret other/pull", key="r.example")


class Holding:
    """A store with these credentials, then anonymous."""

    def __init__(self, *credentials, warnings=()):
        self.credentials = [*credentials, ANONYMOUS]
        self.found = warnings
        self.asked = 0

    async def candidates(self, reference, source):
        self.asked += 1
        return list(self.credentials)

    def cached_candidates(self, reference, source):
        return list(self.credentials)

    def warnings(self, source):
        return self.found


@pytest.fixture
async def bearer(start_registry):
    """A registry with a token endpoint, two users, and one public repository."""
    registry = await start_registry(auth="bearer")
    registry.users = {"robot": ROBOT.password, "second": SECOND.password}
    registry.public.add("public/app")
    for repository in ("team/app", "team/other", "public/app"):
        registry.push_index(repository, "1", "linux/amd64", "linux/arm64")
    return registry


@pytest.fixture
async def basic(start_registry):
    registry = await start_registry(auth="basic")
    registry.users = {"robot": ROBOT.password}
    registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
    registry.push_index("team/app", "2", "linux/amd64", "linux/arm64")
    return registry


@pytest.mark.req("RG-035", "RG-071")
class TestBearer:
    """401 + token + GET for the first image of a host, token + GET for further repositories."""

    async def test_the_first_image_of_a_host_and_the_next_repository(self, bearer, make_inspector, ref):
        inspector = make_inspector(credentials=Holding(ROBOT))
        assert (await inspector.inspect(ref("team/app:1", bearer))).status is Status.RESOLVED
        assert bearer.requests() == ["GET team/app/manifests/1", "GET token", "GET team/app/manifests/1"]
        assert "authorization" not in bearer.seen[0].headers
        assert (await inspector.inspect(ref("team/other:1", bearer))).requests == 2
        assert bearer.requests()[3:] == ["GET token", "GET team/other/manifests/1"]

    @pytest.mark.req("RG-072")
    async def test_a_token_is_asked_for_with_service_scope_and_client(self, bearer, make_inspector, ref):
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", bearer))
        token = bearer.seen[1]
        assert parse_qs(token.query) == {
            "service": ["registry"],
            "scope": ["repository:team/app:pull"],
            "client_id": ["polyarch"],
        }
        assert token.headers["authorization"] == ROBOT.basic

    async def test_a_public_repository_needs_no_credential(self, bearer, make_inspector, ref):
        found = await make_inspector().inspect(ref("public/app:1", bearer))
        assert (found.status, found.public) == (Status.RESOLVED, True)
        assert "authorization" not in bearer.seen[1].headers

    async def test_one_token_for_many_at_once(self, bearer, make_inspector, ref):
        inspector = make_inspector(credentials=Holding(ROBOT))
        for number in range(20):
            bearer.push_index("team/app", str(number), "linux/amd64", "linux/arm64")
        await inspector.inspect(ref("team/other:1", bearer))
        bearer.delay = 0.02
        await inspector.inspect_many([ref(f"team/app:{number}", bearer) for number in range(20)])
        assert len(bearer.requests("GET", "^token")) == 2

    @pytest.mark.req("RG-073")
    async def test_it_is_used_until_ten_seconds_before_its_end(self, bearer, make_inspector, ref, clock):
        inspector = make_inspector(credentials=Holding(ROBOT))
        bearer.token_life = 100
        await inspector.inspect(ref("team/app:1", bearer))
        clock.advance(89)
        await inspector.inspect(ref("team/app:1", bearer), fresh=True)
        assert len(bearer.requests("GET", "^token")) == 1
        clock.advance(7)
        await inspector.inspect(ref("team/app:1", bearer), fresh=True)
        assert len(bearer.requests("GET", "^token")) == 2

    @pytest.mark.req("RG-074")
    async def test_a_reused_token_that_is_refused_is_renewed_once(self, bearer, make_inspector, ref, clock):
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", bearer))
        bearer.revoke_tokens()
        clock.advance(10)
        seen = len(bearer.seen)
        found = await inspector.inspect(ref("team/app:1", bearer), fresh=True)
        assert found.status is Status.RESOLVED
        assert bearer.requests()[seen:] == ["HEAD team/app/manifests/1", "GET token", "HEAD team/app/manifests/1"]

    @pytest.mark.req("RG-074")
    async def test_an_insufficient_scope_is_asked_for_once_more(self, bearer, make_inspector, ref, answer):
        """Once more with the scope named."""
        inspector = make_inspector(credentials=Holding(ROBOT))
        realm = f'realm="{bearer.url}/token",service="registry"'
        named = f'Bearer {realm},error="insufficient_scope",scope="repository:team/app:pull,extra"'
        plain = f"Bearer {realm}"
        bearer.script(
            "GET", "/manifests/", *(answer(401, headers={"WWW-Authenticate": each}) for each in (plain, named))
        )
        bearer.script(
            "GET", "/manifests/", answer(200, *bearer.manifests["team/app", bearer.tags["team/app", "1"]][:1])
        )
        found = await inspector.inspect(ref("team/app:1", bearer))
        assert found.status is Status.RESOLVED, found.error
        scopes = [parse_qs(seen.query)["scope"] for seen in bearer.seen if seen.path == "token"]
        assert scopes == [["repository:team/app:pull"], ["repository:team/app:pull,extra"]]

    @pytest.mark.req("PL-420", "RG-072")
    async def test_an_identity_token_is_exchanged(self, bearer, make_inspector, ref):
        bearer.identity_tokens["refresh"] = "robot"
        credential = Credential(identity_token="refresh", source="file", key="r")
        found = await make_inspector(credentials=Holding(credential)).inspect(ref("team/app:1", bearer))
        assert found.status is Status.RESOLVED, found.error
        assert bearer.requests("POST") == ["POST token"]

    @pytest.mark.parametrize("status", [404, 405])
    @pytest.mark.parametrize(("password", "resolved"), [("password-of-robot", True), ("", False)])
    async def test_where_post_is_unknown_a_password_is_the_other_way(
        self, bearer, make_inspector, ref, answer, status, password, resolved
    ):
        bearer.script("POST", "^token", answer(status), forever=True)
        credential = Credential("robot", password, identity_token="refresh", source="file", key="r")
        found = await make_inspector(credentials=Holding(credential)).inspect(ref("team/app:1", bearer))
        assert (found.status is Status.RESOLVED) == resolved
        if not resolved:
            assert found.error.code == "unauthorized"

    async def test_a_registry_token_is_shown_as_it_is(self, bearer, make_inspector, ref):
        bearer._tokens["ready-made"] = ("robot", "repository:team/app:pull")
        credential = Credential(registry_token="ready-made", source="file", key="r")
        found = await make_inspector(credentials=Holding(credential)).inspect(ref("team/app:1", bearer))
        assert found.status is Status.RESOLVED
        assert bearer.requests("", "^token") == []

    @pytest.mark.req("RG-073")
    async def test_an_answer_without_a_token_says_so(self, bearer, make_inspector, ref, answer):
        bearer.script("GET", "^token", answer(200, b'{"token": ""}'), forever=True)
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", bearer))
        assert found.error.code == "unauthorized"
        assert "token endpoint answered without a token" in found.error.message

    async def test_a_token_endpoint_that_is_away_is_no_refusal(self, bearer, make_inspector, ref, answer):
        bearer.script("GET", "^token", answer(500), forever=True)
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", bearer))
        assert (found.error.code, found.error.error_class) == ("server-error", "transient")

    @pytest.mark.req("RG-072")
    async def test_another_repositorys_scope_is_not_asked_for(self, bearer, make_inspector, ref, answer):
        """The challenge's scope is used iff it names the same repository."""
        challenge = f'Bearer realm="{bearer.url}/token",service="registry",scope="repository:crown/jewels:pull"'
        bearer.script("GET", "/manifests/", answer(401, headers={"WWW-Authenticate": challenge}))
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", bearer))
        assert found.status is Status.RESOLVED
        assert parse_qs(bearer.seen[1].query)["scope"] == ["repository:team/app:pull"]


@pytest.mark.req("RG-104")
class TestRealms:
    @pytest.mark.req("RG-074")
    @pytest.mark.parametrize("credentials", [(ROBOT,), ()], ids=["with", "without"])
    @pytest.mark.parametrize(
        ("realm", "why"),
        [
            ("ftp://auth.example/token", "is not an absolute http or https URL"),
            ("https://user:pass@auth.example/token", "without user info"),
            ("https://auth.example/token#x", "has a fragment"),
            ("/token", "is not an absolute http or https URL"),
        ],
    )
    async def test_an_unusable_realm_makes_the_challenge_unusable(
        self, bearer, make_inspector, ref, realm, why, credentials
    ):
        """And it is said what is wrong with it."""
        bearer.realm = realm
        found = await make_inspector(credentials=Holding(*credentials)).inspect(ref("team/app:1", bearer))
        assert found.error.code == "unauthorized"
        assert "token endpoint" in found.error.message
        assert why in found.error.message
        assert "pass@" not in found.error.message

    @pytest.mark.req("RG-071")
    async def test_with_basic_beside_it_that_is_used(self, basic, make_inspector, ref, answer):
        """Bearer with a usable realm, else basic with credentials."""
        challenge = 'Bearer realm="ftp://auth.example", Basic realm="x"'
        basic.script("GET", "", answer(401, headers={"WWW-Authenticate": challenge}))
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", basic))
        assert found.status is Status.RESOLVED

    async def test_a_forbidden_address_is_refused(self, bearer, make_inspector, ref):
        bearer.realm = "http://169.254.169.254/token"
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", bearer))
        assert (found.error.code, found.error.error_class) == ("refused-address", "configuration")

    @pytest.mark.req("RG-105")
    async def test_a_token_request_stays_within_its_origin(self, bearer, start_registry, make_inspector, ref, answer):
        other = await start_registry()
        bearer.script("GET", "^token", answer(302, headers={"Location": f"{other.url}/token"}))
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", bearer))
        assert (found.error.code, other.seen) == ("refused-redirect", [])


@pytest.mark.req("RG-084")
class TestMovedRealms:
    """A realm that fails is learned anew at the next challenge."""

    @pytest.fixture
    async def endpoint(self, bearer, start_registry):
        """Another token endpoint of the same registry."""
        endpoint = await start_registry(auth="bearer")
        endpoint.users, endpoint._tokens = bearer.users, bearer._tokens
        return endpoint

    @pytest.mark.parametrize(
        "end",
        [
            pytest.param({"status": 500}, id="it fails"),
            pytest.param({"status": 404}, id="it is not there"),
            pytest.param({"status": 200, "body": b"<html>moved</html>"}, id="there is something else"),
            pytest.param({"drop": True}, id="it breaks off"),
        ],
    )
    async def test_the_new_one_is_asked(self, bearer, endpoint, make_inspector, ref, answer, end):
        inspector = make_inspector(credentials=Holding(ROBOT), attempts=1)
        assert (await inspector.inspect(ref("team/app:1", bearer))).status is Status.RESOLVED
        bearer.realm = f"{endpoint.url}/token"
        bearer.script("*", "^token", answer(**end), forever=True)
        assert (await inspector.inspect(ref("team/other:1", bearer))).status is Status.ERROR
        bearer.push_index("team/other", "2", "linux/amd64", "linux/arm64")
        found = await inspector.inspect(ref("team/other:2", bearer))
        assert found.status is Status.RESOLVED, found.error
        assert endpoint.requests() == ["GET token"]

    @pytest.mark.parametrize("status", [401, 403, 429])
    async def test_one_that_refuses_is_no_other_one(self, bearer, make_inspector, ref, answer, status):
        """It costs the next image no more than its token and its manifest."""
        inspector = make_inspector(credentials=Holding(ROBOT), wait=False)
        await inspector.inspect(ref("team/app:1", bearer))
        refuse = answer(status, headers={"Retry-After": "1"} if status == 429 else {})
        bearer.script("*", "^token", refuse, refuse)
        assert (await inspector.inspect(ref("team/none:1", bearer))).status is Status.ERROR
        bearer.clear_scripts()
        inspector._clock.advance(2)
        assert (await inspector.inspect(ref("team/other:1", bearer))).requests == 2


@pytest.mark.req("RG-084")
class TestRedirectedAway:
    """A target of redirects may have an anonymous token of its own, and never anybody's credential."""

    @pytest.fixture
    async def thief(self, start_registry, answer):
        """Who answers 401 to all and would be glad of a credential."""
        thief = await start_registry()
        challenges = f'Bearer realm="{thief.url}/token",service="registry", Basic realm="thief"'
        thief.script("GET", "^token", answer(200, b'{"token": "thiefs-token"}'), forever=True)
        thief.script("*", "", answer(401, headers={"WWW-Authenticate": challenges}), forever=True)
        return thief

    def shown(self, *registries):
        return [
            seen.headers["authorization"]
            for each in registries
            for seen in each.seen
            if "authorization" in seen.headers
        ]

    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    async def test_its_realm_gets_no_credential(self, registry, thief, make_inspector, ref, answer, clock, method):
        registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        inspector = make_inspector(credentials=Holding(ROBOT))
        if method == "HEAD":
            await inspector.inspect(ref("team/app:1"))
            clock.advance(10)
        registry.script(method, "/manifests/", answer(307, headers={"Location": f"{thief.url}/v2/x"}), forever=True)
        found = await inspector.inspect(ref("team/app:1"), fresh=True)
        assert self.shown(registry, thief) == ["Bearer thiefs-token"]
        assert thief.requests("", "x") == [f"{method} x"] * 2
        assert (found.error.code, found.error.status, found.error.host) == ("unauthorized", 401, registry.host)
        assert f"redirect to {thief.host}" in found.error.message

    async def test_neither_does_a_blobs(self, registry, thief, make_inspector, ref, answer):
        registry.push_image("team/app", "1", "linux/s390x")
        registry.script("GET", "/blobs/", answer(307, headers={"Location": f"{thief.url}/v2/x"}), forever=True)
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1"))
        assert (found.error.code, self.shown(registry, thief)) == ("unauthorized", ["Bearer thiefs-token"])

    async def test_what_the_registry_itself_wants_is_not_forgotten_for_it(
        self, bearer, thief, make_inspector, ref, answer
    ):
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", bearer))
        bearer.script("GET", "team/other/manifests/", answer(307, headers={"Location": f"{thief.url}/v2/x"}))
        failed = await inspector.inspect(ref("team/other:1", bearer))
        assert failed.error.code == "unauthorized"
        assert (self.shown(thief), thief.requests("", "x")) == (["Bearer thiefs-token"], ["GET x"] * 2)
        seen = len(bearer.seen)
        bearer.push_index("team/other", "2", "linux/amd64", "linux/arm64")
        assert (await inspector.inspect(ref("team/other:2", bearer))).status is Status.RESOLVED
        assert bearer.requests()[seen:] == ["GET team/other/manifests/2"]  # with the token that it has

    async def test_its_refusal_is_no_refusal_of_the_credential(
        self, bearer, start_registry, make_inspector, ref, answer
    ):
        """A signed URL that ran out is no reason to forget who may read the repository."""
        store = await start_registry()
        store.script("GET", "", answer(403), forever=True)
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", bearer))
        child = bearer.push_image("team/app", "single", "linux/s390x")
        bearer.script("GET", "/blobs/", answer(307, headers={"Location": f"{store.url}/signed"}), forever=True)
        failed = await inspector.inspect(ref(f"team/app@{child}", bearer))
        assert (failed.error.code, failed.error.status) == ("denied", 403)
        assert store.host in failed.error.message
        assert inspector.peek(ref("team/app:1", bearer), Holding(ROBOT)).status is Status.RESOLVED

    @pytest.mark.req("RG-032")
    async def test_a_url_signed_for_get_alone_is_asked_for_by_get(self, registry, thief, make_inspector, ref, answer):
        """A HEAD that is refused where it leads to is followed by one GET."""
        digest = registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        inspector = make_inspector()
        await inspector.inspect(ref("team/app:1"), credentials=Holding(ROBOT))
        thief.clear_scripts()
        thief.script("HEAD", "", answer(403, headers={"WWW-Authenticate": f'Bearer realm="{thief.url}/token"'}))
        registry.script("HEAD", "/manifests/", answer(307, headers={"Location": f"{thief.url}/v2/x"}))
        found = await inspector.inspect(ref("team/app:1"), credentials=Holding(ROBOT), fresh=True)
        assert (found.status, found.digest, self.shown(registry, thief)) == (Status.RESOLVED, digest, [])


class TestAnotherRegistryBehindRedirects:
    """Hosts of vanity lead to the registry that has the images, which wants a token like any other."""

    @pytest.fixture
    async def backend(self, start_registry):
        backend = await start_registry(auth="bearer")
        backend.public.add("team/app")
        return backend

    @pytest.fixture
    def moved(self, registry, backend, answer):
        """All of the registry is at the backend."""
        location = {"Location": f"{backend.url}/v2/team/app/manifests/1"}
        registry.script("*", "/manifests/", answer(307, headers=location), forever=True)
        return registry

    @pytest.mark.req("RG-084")
    async def test_an_anonymous_token_of_its_realm_opens_it(self, moved, backend, make_inspector, ref):
        digest = backend.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", moved))
        assert (found.status, found.digest, found.public) == (Status.RESOLVED, digest, True)
        assert not any("authorization" in seen.headers for seen in moved.seen)
        assert not any("Basic" in seen.headers.get("authorization", "") for seen in backend.seen)

    async def test_its_token_is_kept(self, moved, backend, make_inspector, ref):
        backend.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        inspector = make_inspector()
        for tag in "abc":
            assert (await inspector.inspect(ref(f"team/app:{tag}", moved))).status is Status.RESOLVED
        assert (len(backend.requests("", "token")), len(backend.manifest_requests())) == (1, 6)

    async def test_a_token_that_is_no_longer_taken_is_renewed_once(self, moved, backend, make_inspector, ref):
        backend.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        inspector = make_inspector()
        await inspector.inspect(ref("team/app:a", moved))
        backend.revoke_tokens()
        assert (await inspector.inspect(ref("team/app:b", moved))).status is Status.RESOLVED
        assert len(backend.requests("", "token")) == 2

    async def test_where_anonymous_access_is_refused_the_image_cannot_be_read(
        self, moved, backend, make_inspector, ref
    ):
        backend.public.clear()
        backend.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        found = await make_inspector(credentials=Holding(ROBOT)).inspect(ref("team/app:1", moved))
        assert found.error.error_class == "auth"
        assert not any("Basic" in seen.headers.get("authorization", "") for seen in backend.seen)

    async def test_a_private_address_behind_a_public_registry_gets_no_request_for_a_token(
        self, registry, start_registry, make_inspector, ref, answer
    ):
        """A realm is judged as the redirect is: by the registry that began."""
        other = await start_registry()
        challenge = {"WWW-Authenticate": 'Bearer realm="http://169.254.169.254/token",service="x"'}
        other.script("*", "", answer(401, headers=challenge), forever=True)
        registry.script("GET", "/manifests/", answer(307, headers={"Location": f"{other.url}/v2/x"}), forever=True)
        found = await make_inspector().inspect(ref("team/app:1"))
        assert (found.error.code, found.requests) == ("unauthorized", 2)


class TestBasic:
    @pytest.mark.req("RG-071")
    async def test_it_is_shown_after_the_first_401_and_then_at_once(self, basic, make_inspector, ref):
        inspector = make_inspector(credentials=Holding(ROBOT))
        assert (await inspector.inspect(ref("team/app:1", basic))).requests == 2
        assert (await inspector.inspect(ref("team/app:2", basic))).requests == 1

    async def test_a_host_that_changes_its_mind_is_understood(self, basic, make_inspector, ref):
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", basic))
        basic.auth = "bearer"
        assert (await inspector.inspect(ref("team/app:2", basic))).status is Status.RESOLVED

    async def test_a_host_that_opens_up_is_asked_without_credentials_for_nothing_worse(
        self, basic, make_inspector, ref
    ):
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", basic))
        basic.auth = None
        assert (await inspector.inspect(ref("team/app:2", basic))).requests == 1


def answer_to(registry, **by_user):
    """A script: what the users are answered instead of the truth, by the tokens that they show."""

    def play(request):
        token = request.headers.get("Authorization", "").partition(" ")[2]
        user = registry._tokens.get(token, ("",))[0]
        if user in by_user:
            return Answer(*by_user[user])
        challenge = f'Bearer realm="{registry.url}/token",service="registry"'
        return Answer(401, headers={"WWW-Authenticate": challenge})

    return play


@pytest.mark.req("PL-420")
class TestCandidates:
    """RG-060 class auth, RG-074, PL-420: all are tried in turn, then anonymous."""

    @pytest.mark.parametrize("auth", ["basic", "bearer"])
    async def test_the_next_one_has_its_turn(self, start_registry, make_inspector, ref, auth):
        registry = await start_registry(auth=auth)
        registry.users = {"robot": ROBOT.password}
        registry.push_index("team/app", "1", "linux/amd64", "linux/arm64")
        found = await make_inspector(credentials=Holding(STRANGER, ROBOT)).inspect(ref("team/app:1", registry))
        assert (found.status, found.public) == (Status.RESOLVED, False)

    async def test_403_goes_to_the_next_too(self, bearer, make_inspector, ref, answer):
        bearer.readers["team/app"] = {"second"}
        bearer.script(
            "GET",
            "/manifests/",
            lambda request: answer(
                401, headers={"WWW-Authenticate": f'Bearer realm="{bearer.url}/token",service="registry"'}
            ),
            lambda request: answer(403, b'{"errors":[{"code":"DENIED","message":"not you"}]}'),
        )
        found = await make_inspector(credentials=Holding(ROBOT, SECOND)).inspect(ref("team/app:1", bearer))
        assert found.status is Status.RESOLVED

    async def test_denied_is_said_when_nobody_may(self, basic, make_inspector, ref):
        basic.users["second"] = SECOND.password
        basic.readers["team/app"] = set()
        found = await make_inspector(credentials=Holding(SECOND)).inspect(ref("team/app:1", basic))
        assert (found.error.code, found.error.status) == ("denied", 403)
        for part in ("DENIED", SECOND.source, basic.host):
            assert part in found.error.message

    @pytest.mark.req("RG-074")
    @pytest.mark.parametrize("method", ["GET", "HEAD"])
    @pytest.mark.parametrize("order", [(ROBOT,), (STRANGER, ROBOT), (ROBOT, STRANGER)], ids=["one", "last", "first"])
    async def test_the_most_telling_refusal_is_told(self, bearer, make_inspector, ref, clock, method, order):
        """403 before 401 before a refused token, and never the anonymous turn's in its stead."""
        inspector = make_inspector()
        if method == "HEAD":
            bearer.public.add("team/app")
            await inspector.inspect(ref("team/app:1", bearer))
            clock.advance(601)
            bearer.public.discard("team/app")
            bearer.revoke_tokens()
        bearer.readers["team/app"] = set()
        denied = answer_to(bearer, robot=(403, b'{"errors":[{"code":"DENIED","message":"not you"}]}'))
        bearer.script("*", "/manifests/", denied, forever=True)
        found = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(*order))
        assert (found.error.code, found.error.status) == ("denied", 403)
        for part in ("DENIED", ROBOT.source, "ask for pull rights"):
            assert part in found.error.message
        assert STRANGER.source not in found.error.message

    @pytest.mark.req("RG-060", "RG-074")
    async def test_a_wrong_password_is_not_told_as_none(self, bearer, make_inspector, ref):
        """The token endpoint refuses it, and the registry whoever comes without."""
        found = await make_inspector(credentials=Holding(STRANGER)).inspect(ref("team/app:1", bearer))
        assert (found.error.code, found.error.status) == ("unauthorized", 401)
        assert f"the token endpoint refused the credential from {STRANGER.origin}" in found.error.message
        assert "check the credentials" in found.error.message
        assert "no credentials" not in found.error.message

    async def test_nor_where_the_token_endpoint_refuses_everybody(self, bearer, make_inspector, ref, answer):
        bearer.script("GET", "^token", answer(401), forever=True)
        found = await make_inspector(credentials=Holding(STRANGER)).inspect(ref("team/app:1", bearer))
        assert STRANGER.origin in found.error.message
        assert "no credentials" not in found.error.message

    @pytest.mark.req("RG-060")
    async def test_without_credentials_it_is_said_that_it_may_be_private(self, bearer, make_inspector, ref):
        found = await make_inspector().inspect(ref("team/app:1", bearer))
        assert (found.error.code, found.error.error_class) == ("unauthorized", "auth")
        assert "may be private or not exist" in found.error.message

    @pytest.mark.req("RG-074")
    async def test_rejected_credentials_are_told_when_anonymous_access_works(self, bearer, make_inspector, ref):
        """Names file and key, not the value."""
        found = await make_inspector(credentials=Holding(STRANGER)).inspect(ref("public/app:1", bearer))
        (warning,) = found.warnings
        assert warning.code == "credentials-rejected"
        assert STRANGER.source in warning.message
        assert STRANGER.key in warning.message
        assert STRANGER.password not in warning.message

    @pytest.mark.req("RG-060")
    async def test_a_refusal_is_remembered_until_the_credentials_change(self, bearer, make_inspector, ref):
        """Negative cache 60 s, dropped when credentials change."""
        inspector = make_inspector()
        first = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(STRANGER))
        again = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(STRANGER))
        assert (first.error.code, again.cached, again.requests) == ("unauthorized", True, 0)
        assert (
            await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        ).status is Status.RESOLVED

    async def test_a_broken_helper_is_named_in_a_refusal(self, bearer, make_inspector, ref):
        warning = CredentialWarning("credential-helper", "docker-credential-broken ended with 1")
        found = await make_inspector(credentials=Holding(warnings=(warning,))).inspect(ref("team/app:1", bearer))
        assert (found.error.code, found.error.error_class) == ("credential-helper", "auth")
        assert "docker-credential-broken" in found.error.message
        good = await make_inspector(credentials=Holding(warnings=(warning,))).inspect(ref("public/app:1", bearer))
        assert [each.code for each in good.warnings] == ["credential-helper"]

    async def test_a_config_is_asked_for_as_its_manifest_was(self, bearer, make_inspector, ref):
        bearer.push_image("team/app", "single", "linux/s390x")
        found = await make_inspector(credentials=Holding(STRANGER, ROBOT)).inspect(ref("team/app:single", bearer))
        assert found.status is Status.RESOLVED
        blobs = [seen for seen in bearer.seen if "/blobs/" in seen.path]
        assert len(blobs) == 1

    @pytest.mark.req("RG-084")
    async def test_mirrors_and_primary_do_not_see_each_others_credentials(
        self, bearer, start_registry, make_inspector, ref, tmp_path
    ):
        from polyarch.oci.auth.credential_stores import KeyringCredentials
        from polyarch.oci.auth.credentials import Document
        from polyarch.oci.pull_sources import Configuration

        mirror = await start_registry(auth="basic")
        file = tmp_path / "registries.conf"
        file.write_text(f'[[registry]]\nlocation = "{bearer.host}"\n[[registry.mirror]]\nlocation = "{mirror.host}"\n')
        document = Document(
            "secret a/b",
            {
                "auths": {
                    bearer.host: {"username": "robot", "password": ROBOT.password},
                    mirror.host: {"username": "mirror", "password": "password-of-mirror"},
                }
            },
            legacy=False,
        )
        inspector = make_inspector(
            configuration=Configuration.load(file, environ={}), credentials=KeyringCredentials([document])
        )
        found = await inspector.inspect(ref("team/app:1", bearer))
        assert found.status is Status.RESOLVED, found.error
        at_mirror = {seen.headers.get("authorization", "") for seen in mirror.seen}
        assert ROBOT.basic not in at_mirror
        assert any(at_mirror)
        mirrors_own = Credential("mirror", "password-of-mirror").basic
        assert mirrors_own not in {seen.headers.get("authorization", "") for seen in bearer.seen}


@pytest.mark.req("PL-852", "RG-111")
class TestWhoMayKnow:
    async def test_a_private_reading_is_not_told_to_others(self, bearer, make_inspector, ref):
        inspector = make_inspector()
        await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        assert inspector.peek(ref("team/app:1", bearer), Holding(ROBOT)) is not None
        assert inspector.peek(ref("team/app:1", bearer), Holding(STRANGER)) is None
        assert inspector.peek(ref("team/app:1", bearer)) is None
        assert (await inspector.inspect(ref("team/app:1", bearer))).status is Status.ERROR

    async def test_who_may_read_it_proves_that_by_one_head(self, bearer, make_inspector, ref):
        inspector = make_inspector()
        first = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        seen = len(bearer.seen)
        reference = ref(f"team/app@{first.digest}", bearer)
        found = await inspector.inspect(reference, credentials=Holding(SECOND))
        assert (found.status, found.cached) == (Status.RESOLVED, True)
        assert bearer.requests()[seen:] == ["GET token", f"HEAD team/app/manifests/{first.digest}"]

    async def test_the_same_digest_elsewhere_is_read_there(self, bearer, make_inspector, ref):
        """Knowing that a digest exists in one repository does not show it to who reads another."""
        inspector = make_inspector()
        first = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        bearer.readers["team/app"] = {"robot"}
        found = await inspector.inspect(ref(f"team/none@{first.digest}", bearer), credentials=Holding(SECOND))
        assert found.error.code == "not-found"

    async def test_what_was_read_anonymously_is_usable_anywhere_with_a_proof(self, registry, make_inspector, ref):
        inspector = make_inspector()
        digest = registry.push_index("public/app", "1", "linux/amd64", "linux/arm64")
        registry.push_index("public/copy", "1", "linux/amd64", "linux/arm64")
        await inspector.inspect(ref("public/app:1"))
        await inspector.inspect(ref(f"public/copy@{digest}"))
        assert registry.requests()[1:] == [f"HEAD public/copy/manifests/{digest}"]

    @pytest.mark.parametrize("modes", [("auto",), ("never", "auto")], ids=["read", "then-read-further"])
    async def test_what_was_read_with_credentials_in_an_open_repository_is_not_known_elsewhere(
        self, basic, make_inspector, ref, modes
    ):
        """That the repository is open was found earlier: it may have closed since, and who read it says nothing."""
        inspector = make_inspector()
        child = basic.push_image("team/one", None, "linux/amd64")
        secret = basic.push_index("team/one", None, entries=[basic.entry("linux/amd64", child)])
        assert (
            await inspector.inspect(ref("team/app:1", basic))
        ).error.code == "unauthorized"  # shown first from now on
        for name in ("team/one", "team/two"):
            basic.public.add(name)
            basic.push_index(name, "open", "linux/amd64", "linux/arm64")
            assert (await inspector.inspect(ref(f"{name}:open", basic))).public
        for mode in modes:
            answer = await inspector.inspect(ref(f"team/one@{secret}", basic), credentials=Holding(ROBOT), bundle=mode)
            assert answer.status is Status.RESOLVED
        assert (await inspector.inspect(ref(f"team/two@{secret}", basic))).error.code == "not-found"

    async def test_a_refusal_takes_the_proof_away(self, bearer, make_inspector, ref, clock):
        inspector = make_inspector(credentials=Holding(ROBOT))
        await inspector.inspect(ref("team/app:1", bearer))
        bearer.readers["team/app"] = set()
        bearer.revoke_tokens()
        clock.advance(10)
        assert (await inspector.inspect(ref("team/app:1", bearer), fresh=True)).error.error_class == "auth"
        answer = inspector.peek(ref("team/app:1", bearer))
        assert answer is None or answer.status is Status.ERROR

    @pytest.mark.req("PL-423")
    async def test_a_withdrawn_secret_proves_nothing(self, bearer, make_inspector, ref):
        inspector = make_inspector()
        await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        inspector.forget([ROBOT])
        assert inspector.peek(ref("team/app:1", bearer), Holding(ROBOT)) is None

    @pytest.mark.req("RG-116")
    async def test_last_good_is_that_credentials_own(self, bearer, make_inspector, ref, clock, answer):
        inspector = make_inspector()
        await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        clock.advance(700)
        bearer.script("*", "", answer(500), forever=True)
        mine = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT))
        theirs = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(SECOND))
        assert mine.last_good is not None
        assert theirs.last_good is None


@pytest.mark.req("PL-403", "PL-900", "RG-112")
class TestPublicProbe:
    @pytest.fixture
    def fifty(self):
        return [Holding(Credential(f"user-{number}", "password", source=f"s{number}", key="k")) for number in range(50)]

    @pytest.mark.req("RG-162")
    @pytest.mark.parametrize("at_once", [True, False])
    async def test_fifty_credentials_and_one_public_image(self, bearer, make_inspector, ref, fifty, at_once):
        """50 credentials × one public image → 1 manifest GET and ≤ 1 HEAD."""
        inspector = make_inspector(public_probe=True, wait=False)
        reference = ref("public/app:1", bearer)
        asked = (inspector.inspect(reference, credentials=store) for store in fifty)
        answers = await asyncio.gather(*asked) if at_once else [await each for each in asked]
        assert {answer.status for answer in answers} == {Status.RESOLVED}
        assert all(answer.public for answer in answers)
        served = [seen for seen in bearer.seen if "/manifests/" in seen.path and "authorization" in seen.headers]
        assert [seen.method for seen in served] == ["GET"]
        assert all("Basic" not in seen.headers.get("authorization", "") for seen in bearer.seen)

    @pytest.mark.parametrize("at_once", [True, False])
    async def test_where_gets_are_charged_a_head_finds_out(self, bearer, make_inspector, ref, fifty, at_once):
        inspector = make_inspector(public_probe=True, wait=False, head_first_hosts=(bearer.host,))
        bearer.users.update({f"user-{number}": "password" for number in range(50)})
        reference = ref("public/app:1", bearer)
        asked = (inspector.inspect(reference, credentials=store) for store in fifty)
        answers = await asyncio.gather(*asked) if at_once else [await each for each in asked]
        assert {answer.status for answer in answers} == {Status.RESOLVED}
        served = [
            (seen.method, seen.headers.get("authorization", "").rpartition("-")[2])
            for seen in bearer.seen
            if "/manifests/" in seen.path and "authorization" in seen.headers
        ]
        assert [method for method, _ in served] == ["HEAD", "GET"]
        assert served[0][1] == "anonymous"
        assert served[1][1] != "anonymous"  # charged to an account, not to this address

    @pytest.mark.req("PL-422")
    async def test_a_public_image_is_known_without_looking_at_anybodys_secrets(self, bearer, make_inspector, ref):
        inspector = make_inspector(public_probe=True)
        await inspector.inspect(ref("public/app:1", bearer))
        store = Holding(ROBOT)
        assert inspector.peek(ref("public/app:1", bearer), _Unread()) is not None
        assert (await inspector.inspect(ref("public/app:1", bearer), credentials=store)).requests == 0
        assert store.asked == 0

    async def test_public_for_a_day(self, bearer, make_inspector, ref, clock):
        inspector = make_inspector(public_probe=True, tag_ttl=10**9)
        await inspector.inspect(ref("public/app:1", bearer))
        clock.advance(24 * 3600 - 1)
        assert inspector.peek(ref("public/app:1", bearer), Holding(STRANGER)) is not None
        clock.advance(1)
        assert inspector.peek(ref("public/app:1", bearer), Holding(STRANGER)) is None

    async def test_private_for_an_hour(self, bearer, make_inspector, ref, clock):
        inspector = make_inspector(public_probe=True)
        for minutes, anonymous_asks in ((0, 1), (30, 1), (61, 2)):
            clock.advance(10_000.0 + minutes * 60 - clock.monotonic())
            found = await inspector.inspect(ref("team/app:1", bearer), credentials=Holding(ROBOT), fresh=True)
            assert (found.status, found.public) == (Status.RESOLVED, False)
            asked = [seen for seen in bearer.seen if seen.path == "token" and "authorization" not in seen.headers]
            assert len(asked) == anonymous_asks

    async def test_a_repository_that_becomes_private_stops_being_everybodys(self, bearer, make_inspector, ref, clock):
        inspector = make_inspector(public_probe=True)
        await inspector.inspect(ref("public/app:1", bearer))
        bearer.public.clear()
        bearer.revoke_tokens()
        clock.advance(601)
        found = await inspector.inspect(ref("public/app:1", bearer), credentials=Holding(ROBOT))
        assert (found.status, found.public) == (Status.RESOLVED, False)
        assert inspector.peek(ref("public/app:1", bearer), Holding(STRANGER)) is None

    async def test_without_any_credential_a_refusal_is_asked_for_once(self, bearer, make_inspector, ref):
        found = await make_inspector(public_probe=True).inspect(ref("team/app:1", bearer))
        assert found.error.code == "unauthorized"
        assert bearer.manifest_requests() == ["GET team/app/manifests/1"] * 2  # the 401, and with a token

    async def test_an_absence_for_everybody_is_asked_again_with_credentials(self, bearer, make_inspector, ref):
        """Some registries hide what is private behind a 404."""
        inspector = make_inspector(public_probe=True)
        found = await inspector.inspect(ref("public/app:none", bearer), credentials=Holding(ROBOT))
        assert found.error.code == "not-found"
        users = [
            seen.headers["authorization"].rpartition("-")[2]
            for seen in bearer.seen
            if "Bearer" in seen.headers.get("authorization", "")
        ]
        assert users == ["anonymous", "robot"]


@pytest.mark.req("PL-422")
class TestOwnNames:
    """Look-ups are shared, the names of other tenants' secrets and what they call an image are not."""

    @pytest.fixture
    async def hub(self, bearer):
        """Where GETs are charged, so that the first who asks for a public image shows an account."""
        bearer.push_index("public/app", "2", "linux/amd64", "linux/s390x")
        return bearer

    def texts(self, found):
        error = [found.error.message, *found.error.attempts] if found.error is not None else []
        return " ".join([*error, *(warning.message for warning in found.warnings)])

    async def both(self, inspector, first, second):
        return await asyncio.gather(
            *(inspector.inspect(reference, credentials=store) for reference, store in (first, second))
        )

    async def test_a_public_image_that_is_refused(self, hub, make_inspector, ref, clock):
        inspector = make_inspector(public_probe=True, wait=False, head_first_hosts=(hub.host,))
        await inspector.inspect(ref("public/app:1", hub), credentials=Holding(ROBOT))
        hub.public.clear()
        hub.readers["public/app"] = set()
        hub.revoke_tokens()
        hub.delay = 0.02
        theirs, mine = await self.both(
            inspector, (ref("public/app:2", hub), Holding(STRANGER)), (ref("public/app:2", hub), Holding())
        )
        assert STRANGER.source in self.texts(theirs)
        assert mine.error.code == "unauthorized"
        assert STRANGER.source not in self.texts(mine)

    async def test_a_public_image_that_is_read(self, hub, make_inspector, ref, clock):
        """A rejected credential is a warning to whom it belongs to."""
        inspector = make_inspector(public_probe=True, wait=False, head_first_hosts=(hub.host,))
        digest = hub.tags["public/app", "2"]
        hub.delay = 0.02
        (theirs, mine) = await self.both(
            inspector,
            (ref(f"public/app:of-a-secret-project@{digest}", hub), Holding(STRANGER)),
            (ref(f"public/app@{digest}", hub), Holding(SECOND)),
        )
        assert (theirs.status, mine.status) == (Status.RESOLVED, Status.RESOLVED)
        assert [each.code for each in theirs.warnings] == ["credentials-rejected"]
        assert (mine.reference, mine.warnings) == (ref(f"public/app@{digest}", hub), ())

    @pytest.mark.parametrize("at_once", [True, False], ids=["at once", "from memory"])
    async def test_an_equal_secret_has_another_name_elsewhere(self, bearer, make_inspector, ref, at_once):
        inspector = make_inspector()
        bearer.readers["team/app"] = set()
        same = Credential(ROBOT.username, ROBOT.password, source="secret mine/pull", key="other.example")
        asked = [(ref("team/app:1", bearer), Holding(each)) for each in (ROBOT, same)]
        if at_once:
            bearer.delay = 0.02
            theirs, mine = await self.both(inspector, *asked)
            assert len(bearer.requests("GET", "^token")) == 2  # one look-up: robot's token and anybody's
        else:
            theirs, mine = [await inspector.inspect(reference, credentials=store) for reference, store in asked]
        assert ROBOT.origin in self.texts(theirs)
        assert "secret team" not in self.texts(mine)
        assert same.origin in self.texts(mine)
        known = inspector.peek(*asked[1])
        assert known is None or same.origin in self.texts(known)

    @pytest.mark.req("PL-852")
    async def test_two_look_ups_that_share_a_token_request_name_their_own_secret(self, bearer, make_inspector, ref):
        """Of two tags there are two look-ups, with one token for both; an event named another tenant's
        Secret."""
        inspector = make_inspector()
        del bearer.users["robot"]
        bearer.delay = 0.02
        same = Credential(ROBOT.username, ROBOT.password, source="secret mine/pull", key="other.example")
        theirs, mine = await self.both(
            inspector, (ref("team/app:1", bearer), Holding(ROBOT)), (ref("team/app:2", bearer), Holding(same))
        )
        assert len(bearer.requests("GET", "^token")) == 2  # robot's and anybody's
        assert f"refused the credential from {ROBOT.origin}" in self.texts(theirs)
        assert f"refused the credential from {same.origin}" in self.texts(mine)
        assert "secret team" not in self.texts(mine)

    async def test_an_unusable_document_is_told_to_whom_it_belongs(self, bearer, make_inspector, ref):
        inspector = make_inspector()
        bearer.delay = 0.02
        warning = CredentialWarning("credential-document", "secret team/broken is not usable")
        theirs, mine = await self.both(
            inspector,
            (ref("team/app:1", bearer), Holding(ROBOT, warnings=(warning,))),
            (ref("team/app:1", bearer), Holding(ROBOT)),
        )
        assert ([each.code for each in theirs.warnings], mine.warnings) == (["credential-document"], ())


def figures(remaining):
    return {"RateLimit-Limit": "100;w=21600", "RateLimit-Remaining": f"{remaining};w=21600"}


@pytest.mark.req("RG-063")
class TestAccounts:
    """What an anonymous request used up never holds back one with credentials."""

    @pytest.fixture
    async def hub(self, bearer):
        for number in range(5):
            bearer.push_index("public/app", str(number), "linux/amd64", f"linux/arm64/v{number}")
        bearer.figures = {"": figures(3), "robot": figures(90)}
        return bearer

    async def test_credentials_have_a_quota_of_their_own(self, hub, make_inspector, ref):
        inspector = make_inspector(wait=False, reserve=10)
        assert (await inspector.inspect(ref("public/app:0", hub))).status is Status.RESOLVED
        assert (await inspector.inspect(ref("public/app:1", hub))).error.code == "rate-limited"
        found = await inspector.inspect(ref("team/app:1", hub), credentials=Holding(ROBOT))
        assert found.status is Status.RESOLVED, found.error

    @pytest.mark.parametrize("head_first", [True, False])
    async def test_nor_do_they_wait_for_it_where_everybody_is_asked_for_first(
        self, hub, make_inspector, ref, head_first
    ):
        hosts = (hub.host,) if head_first else ()
        inspector = make_inspector(wait=False, reserve=10, public_probe=True, head_first_hosts=hosts)
        assert (await inspector.inspect(ref("public/app:0", hub))).status is Status.RESOLVED
        found = await inspector.inspect(ref("public/app:1", hub), credentials=Holding(ROBOT))
        assert found.status is Status.RESOLVED, found.error
        assert (await inspector.inspect(ref("public/app:2", hub))).error.code == "rate-limited"

    @pytest.mark.parametrize("public_probe", [True, False])
    async def test_nor_for_a_pause_of_it(self, hub, make_inspector, ref, answer, public_probe):
        inspector = make_inspector(wait=False, reserve=10, public_probe=public_probe)
        hub.figures[""] = figures(90)
        assert (await inspector.inspect(ref("public/app:0", hub))).status is Status.RESOLVED
        hub.script("GET", "/manifests/1", answer(429, headers={"Retry-After": "60", **figures(0)}))
        limited = await inspector.inspect(ref("public/app:1", hub))
        assert (limited.error.code, limited.error.retry_after) == ("rate-limited", 60.0)
        assert (await inspector.inspect(ref("public/app:2", hub))).error.code == "rate-limited"
        found = await inspector.inspect(ref("public/app:2", hub), credentials=Holding(ROBOT))
        assert found.status is Status.RESOLVED, found.error

    async def test_a_limit_that_is_gone_holds_back_nobody(self, hub, make_inspector, ref, clock):
        inspector = make_inspector(wait=False, reserve=10)
        await inspector.inspect(ref("public/app:0", hub))
        hub.figures.clear()
        assert (await inspector.inspect(ref("public/app:1", hub))).error.code == "rate-limited"
        clock.advance(601)
        await inspector.inspect(ref("public/app:0", hub))  # a HEAD
        assert (await inspector.inspect(ref("public/app:1", hub))).status is Status.RESOLVED
        assert inspector.rate_limits == {}


class _Unread:
    """A store whose secrets have not been read yet."""

    async def candidates(self, reference, source):
        raise AssertionError("nobody's secrets are needed")

    def cached_candidates(self, reference, source):
        return None

    def warnings(self, source):
        return ()
