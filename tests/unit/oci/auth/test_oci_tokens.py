"""Token requests and answers, without a network."""

import json
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.oci.auth.authorization import (
    NoToken,
    Token,
    TokenKey,
    Tokens,
    named_scopes,
    pull_scope,
    push_scopes,
    read_token,
    token_requests,
)
from polyarch.oci.auth.credentials import ANONYMOUS, Credential

PASSWORD = Credential("user", "secret", source="file", key="r.example")
IDENTITY = Credential(identity_token="refresh-me", source="file", key="r.example")
BOTH = Credential("user", "secret", identity_token="refresh-me", source="file", key="r.example")


def key(realm="https://auth.example/token?account=x", scopes=("repository:team/app:pull",), service="reg istry"):
    return TokenKey("https://r.example", realm, service, scopes, "fingerprint")


def queried(url):
    return parse_qsl(urlsplit(url).query)


@pytest.mark.req("RG-072")
class TestRequests:
    def test_anonymous_is_a_get_that_keeps_the_realms_own_query(self):
        (request,) = token_requests(key(), ANONYMOUS)
        assert (request.method, request.headers, request.body) == ("GET", {}, None)
        assert queried(request.url) == [
            ("account", "x"),
            ("service", "reg istry"),
            ("scope", "repository:team/app:pull"),
            ("client_id", "polyarch"),
        ]

    def test_a_password_goes_in_the_header_only(self):
        (request,) = token_requests(key(), PASSWORD)
        assert request.headers == {"Authorization": PASSWORD.basic}
        assert "secret" not in request.url

    def test_an_identity_token_is_posted_as_a_form(self):
        (request,) = token_requests(key(), IDENTITY)
        assert (request.method, request.url) == ("POST", key().realm)
        assert dict(parse_qsl(request.body.decode())) == {
            "grant_type": "refresh_token",
            "service": "reg istry",
            "client_id": "polyarch",
            "scope": "repository:team/app:pull",
            "refresh_token": "refresh-me",
        }

    def test_with_a_password_beside_it_a_get_is_the_other_way(self):
        assert [each.method for each in token_requests(key(), BOTH)] == ["POST", "GET"]

    def test_no_service_is_sent_where_the_challenge_has_none(self):
        (request,) = token_requests(key(realm="https://auth.example/token", service=""), ANONYMOUS)
        assert queried(request.url) == [("scope", "repository:team/app:pull"), ("client_id", "polyarch")]

    @pytest.mark.req("RG-075")
    def test_pushing_asks_for_target_and_mount_source_in_one_token(self):
        scopes = push_scopes("team/app", ["team/base"])
        assert scopes == ("repository:team/app:pull,push", "repository:team/base:pull")
        (request,) = token_requests(key(scopes=scopes), PASSWORD)
        assert [value for name, value in queried(request.url) if name == "scope"] == list(scopes)
        (posted,) = token_requests(key(scopes=scopes), IDENTITY)
        assert dict(parse_qsl(posted.body.decode()))["scope"] == " ".join(scopes)

    @pytest.mark.req("RG-087")
    def test_a_request_does_not_show_its_secrets(self):
        shown = repr(token_requests(key(), BOTH))
        assert "refresh-me" not in shown
        assert "Basic" not in shown


class TestScopes:
    @pytest.mark.req("RG-072")
    @pytest.mark.parametrize(
        ("scope", "used"),
        [
            pytest.param("repository:team/app:pull", ("repository:team/app:pull",), id="the same repository"),
            pytest.param("repository:team/app:pull,push", ("repository:team/app:pull,push",), id="other actions"),
            pytest.param("repository:team/other:pull", None, id="another repository"),
            pytest.param("repository:team/app:pull repository:team/other:pull", None, id="another one beside it"),
            pytest.param("repository:team/app:x:pull", None, id="a longer name"),
            pytest.param("registry:catalog:*", None, id="another kind"),
            pytest.param("", None, id="none"),
        ],
    )
    def test_a_challenges_scope_is_used_for_its_own_repository_only(self, scope, used):
        assert named_scopes(scope, "team/app") == used


@pytest.mark.req("RG-073")
class TestAnswers:
    @pytest.mark.parametrize(
        ("answer", "value", "life"),
        [
            pytest.param({"token": "t", "expires_in": 300}, "t", 300, id="token"),
            pytest.param({"access_token": "a", "expires_in": 300}, "a", 300, id="access_token"),
            pytest.param({"token": "t", "access_token": "a"}, "t", 60, id="both; no life means 60"),
            pytest.param({"token": "", "access_token": "a"}, "a", 60, id="an empty one does not count"),
            pytest.param({"token": "t", "expires_in": 5}, "t", 60, id="never less than 60"),
            pytest.param({"token": "t", "expires_in": 0}, "t", 60, id="zero"),
            pytest.param({"token": "t", "expires_in": "300"}, "t", 60, id="a life that is no number"),
            pytest.param({"token": "t", "expires_in": 10**400}, "t", 86400, id="longer than a day"),
        ],
    )
    def test_the_token_and_its_life(self, answer, value, life):
        token = read_token(json.dumps(answer).encode(), received_at=1000.0)
        assert (token.value, token.until) == (value, 1000.0 + life - 10)

    @pytest.mark.parametrize(
        "body",
        [
            pytest.param(b"{}", id="neither"),
            pytest.param(b"[]", id="not an object"),
            pytest.param(b"<html>", id="not JSON"),
            pytest.param(b"[" * 100_000, id="nested without end"),
            pytest.param(b'{"token": 5}', id="not a text"),
            pytest.param(b'{"token": "a\\r\\nX-Evil: 1"}', id="more than one header"),
            pytest.param(b'{"token": "%s"}' % (b"a" * 17_000), id="longer than a header may be"),
        ],
    )
    def test_no_token(self, body):
        with pytest.raises(NoToken, match="the token endpoint answered with"):
            read_token(body, 0.0)

    @given(st.binary())
    def test_any_bytes_are_answered(self, body):
        try:
            read_token(body, 0.0)
        except NoToken:
            return

    def test_it_is_used_again_until_ten_seconds_before_its_end(self, clock):
        tokens = Tokens(clock)
        tokens.put(key(), read_token(b'{"token": "t", "expires_in": 100}', clock.monotonic()))
        clock.advance(89)
        assert tokens.get(key()).value == "t"
        clock.advance(1)
        assert tokens.get(key()) is None

    def test_only_the_token_that_was_refused_is_dropped(self, clock):
        tokens, old, new = Tokens(clock), Token("old", 1e9), Token("new", 1e9)
        tokens.put(key(), new)
        tokens.drop(key(), old)
        assert tokens.get(key()) is new
        tokens.drop(key(), new)
        assert tokens.get(key()) is None

    @pytest.mark.req("PL-810")
    def test_tokens_are_bounded_by_what_they_take_in_memory(self, clock):
        """Whoever names a registry chooses its token endpoint."""
        tokens = Tokens(clock)
        for number in range(3000):
            tokens.put(key(f"https://auth.example/{number}"), Token("t" * 16_000, 1e9))
        assert tokens.get(key("https://auth.example/0")) is None
        assert tokens.get(key("https://auth.example/2999")) is not None
        assert tokens._tokens.weight <= 16 * 2**20

    @pytest.mark.req("PL-810")
    def test_scopes_count_in_what_a_token_takes(self, clock):
        """The target of a redirect states them as well."""
        tokens = Tokens(clock)
        scopes = tuple(f"s{number}" for number in range(2000))
        tokens.put(key(), Token("t", 1e9))
        for number in range(300):
            tokens.put(key(f"https://auth.example/{number}")._replace(scopes=scopes), Token("t", 1e9))
        assert tokens.get(key()) is None

    @pytest.mark.req("RG-087")
    def test_a_token_does_not_show_itself(self):
        assert "hidden" not in repr(Token("hidden", 1.0))


def test_the_scope_of_a_pull():
    assert pull_scope("team/app") == "repository:team/app:pull"
