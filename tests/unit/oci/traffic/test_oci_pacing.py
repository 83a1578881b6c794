"""Pauses, circuits and rate limits of a host, without a network."""

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from polyarch.oci.settings import InspectorSettings
from polyarch.oci.traffic.rate_limiter import (
    ACCOUNTS_KEPT,
    HOSTS_KEPT,
    RateLimit,
    RegistryRateLimiter,
    parse_rate_limit,
    parse_retry_after,
)
from polyarch.oci.transport.interface import Headers

NOW = datetime(2026, 1, 1, tzinfo=UTC)


@pytest.fixture
def pacing(clock):
    return RegistryRateLimiter(clock, InspectorSettings(reserve=10))


class TestRetryAfter:
    @pytest.mark.req("RG-062")
    @pytest.mark.parametrize(
        ("value", "seconds"),
        [
            pytest.param("30", 30.0, id="seconds"),
            pytest.param("Thu, 01 Jan 2026 00:01:30 GMT", 90.0, id="an HTTP date"),
            pytest.param("Thu, 01 Jan 2026 00:01:30 -0000", 90.0, id="a date without a zone is UTC"),
            pytest.param("0", 1.0, id="never less than a second"),
            pytest.param("Wed, 31 Dec 2025 00:00:00 GMT", 1.0, id="a date gone by"),
            pytest.param("999999999", 86400.0, id="never more than a day"),
            pytest.param("soon", None, id="neither"),
            pytest.param("", None, id="empty"),
            pytest.param("-5", None, id="a negative number"),
        ],
    )
    def test_values(self, value, seconds):
        assert parse_retry_after(value, NOW) == seconds

    @given(st.text())
    def test_any_text_is_answered(self, text):
        found = parse_retry_after(text, NOW)
        assert found is None or 1.0 <= found <= 86400.0


class TestRateLimits:
    @pytest.mark.req("RG-063")
    @pytest.mark.parametrize(
        ("limit", "remaining", "found"),
        [
            pytest.param("100;w=21600", "73;w=21600", RateLimit(100, 73, 21600, 5.0), id="Docker Hub"),
            pytest.param("100; w = 60", "1", RateLimit(100, 1, 60, 5.0), id="the window of the limit"),
            pytest.param("100", "1", RateLimit(100, 1, 0, 5.0), id="no window"),
            pytest.param("many", "1", None, id="not a number"),
            pytest.param("100", "", None, id="one of the two"),
        ],
    )
    def test_headers(self, limit, remaining, found):
        headers = Headers([("RateLimit-Limit", limit), ("RateLimit-Remaining", remaining)])
        assert parse_rate_limit(headers, 5.0) == found

    def told(self, pacing, remaining, limit=100, window=21600, account=""):
        host = pacing.host("r.example")
        headers = Headers([("ratelimit-limit", f"{limit};w={window}"), ("ratelimit-remaining", str(remaining))])
        pacing.answered(host, headers, account=account, metered=True)
        return host

    def test_gets_stop_at_the_reserve_and_heads_go_on(self, pacing):
        host = self.told(pacing, 10)
        assert pacing.obstacle(host, charged=True).code == "rate-limited"
        assert pacing.obstacle(host) is None
        assert pacing.obstacle(self.told(pacing, 11), charged=True) is None

    def test_they_go_on_when_the_window_could_have_refilled(self, pacing, clock):
        host = self.told(pacing, 8)
        seconds = pacing.obstacle(host, charged=True).seconds
        assert seconds == 3 * 21600 / 100
        clock.advance(seconds)
        assert pacing.obstacle(host, charged=True) is None

    @pytest.mark.req("PL-380", "RG-063")
    @pytest.mark.parametrize(
        ("remaining", "passed", "is_low"),
        [(100, 0, False), (50, 0, False), (49, 0, True), (0, 0, True), (0, 1799, True), (0, 1800, False)],
    )
    def test_a_host_is_low_when_less_than_half_of_its_limit_is_left(self, pacing, clock, remaining, passed, is_low):
        """A warm-up leaves the rest to pods; half of the window refills half of the limit."""
        headers = Headers([("ratelimit-limit", "100;w=3600"), ("ratelimit-remaining", str(remaining))])
        pacing.answered(pacing.host("r.example"), headers)
        clock.advance(passed)
        assert pacing.low("r.example") is is_low
        assert not pacing.low("another.example")

    def test_a_limit_smaller_than_the_reserve_is_still_used(self, pacing):
        assert pacing.obstacle(self.told(pacing, 4, limit=6), charged=True) is None

    @pytest.mark.req("RG-063")
    def test_what_one_account_used_up_holds_back_no_other(self, pacing):
        """Figures belong to (host, credential or anonymous)."""
        host = self.told(pacing, 0)
        assert pacing.obstacle(host, charged=True).code == "rate-limited"
        assert pacing.obstacle(host, charged=True, account="robot") is None
        self.told(pacing, 0, account="robot")
        self.told(pacing, 50)
        assert pacing.obstacle(host, charged=True, account="robot").code == "rate-limited"
        assert pacing.obstacle(host, charged=True) is None

    @pytest.mark.req("RG-063")
    def test_an_answer_without_figures_clears_them(self, pacing):
        """A plan without a limit states none."""
        host = self.told(pacing, 0)
        pacing.answered(host, Headers())  # a blob's, or that of a token endpoint on the same host
        assert pacing.obstacle(host, charged=True) is not None
        pacing.answered(host, Headers(), account="robot", metered=True)
        assert pacing.obstacle(host, charged=True) is not None
        pacing.answered(host, Headers(), metered=True)
        assert pacing.obstacle(host, charged=True) is None
        assert host.rate is None

    @pytest.mark.req("PL-851")
    def test_the_accounts_of_a_host_are_bounded(self, pacing):
        """Pod authors choose credentials, too."""
        for number in range(1000):
            host = self.told(pacing, 0, account=f"account-{number}")
        assert len(host.accounts) <= ACCOUNTS_KEPT
        assert pacing.obstacle(host, charged=True, account="account-999") is not None

    def test_without_a_reserve_all_of_it_is_used(self, clock):
        pacing = RegistryRateLimiter(clock, InspectorSettings())
        assert pacing.obstacle(self.told(pacing, 0), charged=True) is None


class TestPauses:
    @pytest.mark.req("RG-062")
    def test_the_pause_is_the_hosts(self, pacing, clock):
        """For the host, not the request."""
        pacing.limited(pacing.host("r.example"), 30.0)
        assert pacing.busy("r.example")
        assert not pacing.busy("other.example")
        clock.advance(30)
        assert not pacing.busy("r.example")

    @pytest.mark.req("RG-063")
    def test_an_accounts_pause_is_its_own(self, pacing, clock):
        """A 429 that says that the account has nothing left is about the account."""
        host = pacing.host("r.example")
        assert pacing.limited(host, 30.0, account="anonymous") == 30.0
        assert pacing.obstacle(host, account="anonymous").seconds == 30.0
        assert pacing.obstacle(host) is None
        assert not pacing.busy("r.example")
        clock.advance(30)
        assert pacing.obstacle(host, account="anonymous") is None

    def test_without_the_header_it_doubles_up_to_a_minute(self, pacing, clock):
        host, pauses = pacing.host("r.example"), []
        for _ in range(7):
            pauses.append(pacing.limited(host, None))
            clock.advance(pauses[-1])
        assert pauses == [2, 4, 8, 16, 32, 60, 60]

    def test_it_begins_anew_after_an_answer(self, pacing, clock):
        host = pacing.host("r.example")
        clock.advance(pacing.limited(host, None))
        clock.advance(pacing.limited(host, None))
        pacing.served(host)
        assert pacing.limited(host, None) == 2

    def test_requests_that_were_on_their_way_do_not_double_it(self, pacing):
        host = pacing.host("r.example")
        assert [pacing.limited(host, None) for _ in range(8)] == [2] * 8

    def test_a_later_header_makes_it_longer_but_never_shorter(self, pacing):
        host = pacing.host("r.example")
        assert [pacing.limited(host, seconds) for seconds in (10, 30, 5)] == [10, 30, 30]


class TestCircuit:
    @pytest.mark.req("RG-061")
    def test_five_failures_in_a_row_open_it_for_its_rest(self, pacing, clock):
        host = pacing.host("r.example")
        for _ in range(4):
            pacing.unreachable(host)
        assert pacing.obstacle(host) is None
        pacing.unreachable(host)
        obstacle = pacing.obstacle(host)
        assert (obstacle.code, obstacle.seconds) == ("network", 30.0)
        assert "circuit open" in obstacle.text
        clock.advance(30)
        assert pacing.obstacle(host) is None

    def test_after_the_rest_one_more_failure_opens_it_again(self, pacing, clock):
        host = pacing.host("r.example")
        for _ in range(5):
            pacing.unreachable(host)
        clock.advance(31)
        pacing.unreachable(host)
        assert pacing.busy("r.example")

    def test_an_answer_closes_it(self, pacing):
        host = pacing.host("r.example")
        for _ in range(4):
            pacing.unreachable(host)
        pacing.answered(host, Headers())
        pacing.unreachable(host)
        assert not pacing.busy("r.example")


@pytest.mark.req("PL-851")
def test_of_many_hosts_quiet_ones_are_forgotten(pacing):
    """Pod authors choose hosts."""
    pacing.limited(pacing.host("paused.example"), 600)
    for number in range(HOSTS_KEPT * 2):
        pacing.host(f"host-{number}.example")
    assert len(list(pacing)) <= HOSTS_KEPT
    assert pacing.busy("paused.example")


@pytest.mark.req("PL-851", "RG-063")
@pytest.mark.parametrize("kind", ["silent", "answering", "pausing"])
def test_many_hosts_do_not_erase_what_is_known_of_a_big_one(pacing, kind):
    """What a tenant makes up is forgotten before what many ask."""
    big = pacing.host("registry-1.docker.io")
    for _ in range(3):
        pacing.answered(big, Headers([("ratelimit-limit", "100;w=60"), ("ratelimit-remaining", "5")]))
    pacing.has_no_head(big)
    for number in range(HOSTS_KEPT * 2):
        host = pacing.host(f"host-{number}.example")
        if kind != "silent":
            pacing.answered(host, Headers())
        if kind == "pausing":
            pacing.limited(host, 86400.0)
    assert pacing.host("registry-1.docker.io") is big


def test_the_longest_idle_host_is_forgotten(pacing):
    hosts = {name: pacing.host(name) for name in map(str, range(HOSTS_KEPT))}
    pacing.host("0")
    pacing.host("one more")
    assert pacing.host("0") is hosts["0"]
    assert "1" not in {host.name for host in pacing}


def test_asking_whether_a_host_is_busy_does_not_remember_it(pacing):
    assert not pacing.busy("never-asked.example")
    assert list(pacing) == []
