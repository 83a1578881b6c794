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
def rate_limiter(clock):
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

    def told(self, rate_limiter, remaining, limit=100, window=21600, account=""):
        host = rate_limiter.host("r.example")
        headers = Headers([("ratelimit-limit", f"{limit};w={window}"), ("ratelimit-remaining", str(remaining))])
        rate_limiter.answered(host, headers, account=account, metered=True)
        return host

    def test_gets_stop_at_the_reserve_and_heads_go_on(self, rate_limiter):
        host = self.told(rate_limiter, 10)
        assert rate_limiter.unavailable(host, charged=True).code == "rate-limited"
        assert rate_limiter.unavailable(host) is None
        assert rate_limiter.unavailable(self.told(rate_limiter, 11), charged=True) is None

    def test_they_go_on_when_the_window_could_have_refilled(self, rate_limiter, clock):
        host = self.told(rate_limiter, 8)
        seconds = rate_limiter.unavailable(host, charged=True).seconds
        assert seconds == 3 * 21600 / 100
        clock.advance(seconds)
        assert rate_limiter.unavailable(host, charged=True) is None

    @pytest.mark.req("PL-380", "RG-063")
    @pytest.mark.parametrize(
        ("remaining", "passed", "is_low"),
        [(100, 0, False), (50, 0, False), (49, 0, True), (0, 0, True), (0, 1799, True), (0, 1800, False)],
    )
    def test_a_host_is_low_when_less_than_half_of_its_limit_is_left(
        self, rate_limiter, clock, remaining, passed, is_low
    ):
        """A warm-up leaves the rest to pods; half of the window refills half of the limit."""
        headers = Headers([("ratelimit-limit", "100;w=3600"), ("ratelimit-remaining", str(remaining))])
        rate_limiter.answered(rate_limiter.host("r.example"), headers)
        clock.advance(passed)
        assert rate_limiter.low("r.example") is is_low
        assert not rate_limiter.low("another.example")

    def test_a_limit_smaller_than_the_reserve_is_still_used(self, rate_limiter):
        assert rate_limiter.unavailable(self.told(rate_limiter, 4, limit=6), charged=True) is None

    @pytest.mark.req("RG-063")
    def test_what_one_account_used_up_holds_back_no_other(self, rate_limiter):
        """Figures belong to (host, credential or anonymous)."""
        host = self.told(rate_limiter, 0)
        assert rate_limiter.unavailable(host, charged=True).code == "rate-limited"
        assert rate_limiter.unavailable(host, charged=True, account="robot") is None
        self.told(rate_limiter, 0, account="robot")
        self.told(rate_limiter, 50)
        assert rate_limiter.unavailable(host, charged=True, account="robot").code == "rate-limited"
        assert rate_limiter.unavailable(host, charged=True) is None

    @pytest.mark.req("RG-063")
    def test_an_answer_without_figures_clears_them(self, rate_limiter):
        """A plan without a limit states none."""
        host = self.told(rate_limiter, 0)
        rate_limiter.answered(host, Headers())  # a blob's, or that of a token endpoint on the same host
        assert rate_limiter.unavailable(host, charged=True) is not None
        rate_limiter.answered(host, Headers(), account="robot", metered=True)
        assert rate_limiter.unavailable(host, charged=True) is not None
        rate_limiter.answered(host, Headers(), metered=True)
        assert rate_limiter.unavailable(host, charged=True) is None
        assert host.rate is None

    @pytest.mark.req("PL-851")
    def test_the_accounts_of_a_host_are_bounded(self, rate_limiter):
        """Pod authors choose credentials, too."""
        for number in range(1000):
            host = self.told(rate_limiter, 0, account=f"account-{number}")
        assert len(host.accounts) <= ACCOUNTS_KEPT
        assert rate_limiter.unavailable(host, charged=True, account="account-999") is not None

    def test_without_a_reserve_all_of_it_is_used(self, clock):
        rate_limiter = RegistryRateLimiter(clock, InspectorSettings())
        assert rate_limiter.unavailable(self.told(rate_limiter, 0), charged=True) is None


class TestPauses:
    @pytest.mark.req("RG-062")
    def test_the_pause_is_the_hosts(self, rate_limiter, clock):
        """For the host, not the request."""
        rate_limiter.limited(rate_limiter.host("r.example"), 30.0)
        assert rate_limiter.busy("r.example")
        assert not rate_limiter.busy("other.example")
        clock.advance(30)
        assert not rate_limiter.busy("r.example")

    @pytest.mark.req("RG-063")
    def test_an_accounts_pause_is_its_own(self, rate_limiter, clock):
        """A 429 that says that the account has nothing left is about the account."""
        host = rate_limiter.host("r.example")
        assert rate_limiter.limited(host, 30.0, account="anonymous") == 30.0
        assert rate_limiter.unavailable(host, account="anonymous").seconds == 30.0
        assert rate_limiter.unavailable(host) is None
        assert not rate_limiter.busy("r.example")
        clock.advance(30)
        assert rate_limiter.unavailable(host, account="anonymous") is None

    def test_without_the_header_it_doubles_up_to_a_minute(self, rate_limiter, clock):
        host, pauses = rate_limiter.host("r.example"), []
        for _ in range(7):
            pauses.append(rate_limiter.limited(host, None))
            clock.advance(pauses[-1])
        assert pauses == [2, 4, 8, 16, 32, 60, 60]

    def test_it_begins_anew_after_an_answer(self, rate_limiter, clock):
        host = rate_limiter.host("r.example")
        clock.advance(rate_limiter.limited(host, None))
        clock.advance(rate_limiter.limited(host, None))
        rate_limiter.served(host)
        assert rate_limiter.limited(host, None) == 2

    def test_requests_that_were_on_their_way_do_not_double_it(self, rate_limiter):
        host = rate_limiter.host("r.example")
        assert [rate_limiter.limited(host, None) for _ in range(8)] == [2] * 8

    def test_a_later_header_makes_it_longer_but_never_shorter(self, rate_limiter):
        host = rate_limiter.host("r.example")
        assert [rate_limiter.limited(host, seconds) for seconds in (10, 30, 5)] == [10, 30, 30]


class TestCircuit:
    @pytest.mark.req("RG-061")
    def test_five_failures_in_a_row_open_it_for_its_rest(self, rate_limiter, clock):
        host = rate_limiter.host("r.example")
        for _ in range(4):
            rate_limiter.unreachable(host)
        assert rate_limiter.unavailable(host) is None
        rate_limiter.unreachable(host)
        unavailable = rate_limiter.unavailable(host)
        assert (unavailable.code, unavailable.seconds) == ("network", 30.0)
        assert "circuit open" in unavailable.text
        clock.advance(30)
        assert rate_limiter.unavailable(host) is None

    def test_after_the_rest_one_more_failure_opens_it_again(self, rate_limiter, clock):
        host = rate_limiter.host("r.example")
        for _ in range(5):
            rate_limiter.unreachable(host)
        clock.advance(31)
        rate_limiter.unreachable(host)
        assert rate_limiter.busy("r.example")

    def test_an_answer_closes_it(self, rate_limiter):
        host = rate_limiter.host("r.example")
        for _ in range(4):
            rate_limiter.unreachable(host)
        rate_limiter.answered(host, Headers())
        rate_limiter.unreachable(host)
        assert not rate_limiter.busy("r.example")


@pytest.mark.req("PL-851")
def test_of_many_hosts_quiet_ones_are_forgotten(rate_limiter):
    """Pod authors choose hosts."""
    rate_limiter.limited(rate_limiter.host("paused.example"), 600)
    for number in range(HOSTS_KEPT * 2):
        rate_limiter.host(f"host-{number}.example")
    assert len(list(rate_limiter)) <= HOSTS_KEPT
    assert rate_limiter.busy("paused.example")


@pytest.mark.req("PL-851", "RG-063")
@pytest.mark.parametrize("kind", ["silent", "answering", "pausing"])
def test_many_hosts_do_not_erase_what_is_known_of_a_big_one(rate_limiter, kind):
    """What a tenant makes up is forgotten before what many ask."""
    big = rate_limiter.host("registry-1.docker.io")
    for _ in range(3):
        rate_limiter.answered(big, Headers([("ratelimit-limit", "100;w=60"), ("ratelimit-remaining", "5")]))
    rate_limiter.has_no_head(big)
    for number in range(HOSTS_KEPT * 2):
        host = rate_limiter.host(f"host-{number}.example")
        if kind != "silent":
            rate_limiter.answered(host, Headers())
        if kind == "pausing":
            rate_limiter.limited(host, 86400.0)
    assert rate_limiter.host("registry-1.docker.io") is big


@pytest.mark.req("PL-851", "RG-118")
def test_a_tenant_that_brings_many_hosts_loses_its_own(rate_limiter):
    """However many answers they give, and however long they are paused."""
    modest = rate_limiter.host("modest.example", tenant="modest")
    for number in range(HOSTS_KEPT * 2):
        host = rate_limiter.host(f"host-{number}.example", tenant="greedy")
        rate_limiter.answered(host, Headers())
        rate_limiter.limited(host, 86400.0)
    assert rate_limiter.host("modest.example") is modest
    assert len(list(rate_limiter)) == HOSTS_KEPT


@pytest.mark.req("PL-851")
def test_a_host_that_answered_less_is_forgotten_before_one_that_is_not_paused(rate_limiter):
    """Whoever answers can ask for pauses."""
    rate_limiter.limited(rate_limiter.host("paused.example"), 86400.0)
    hosts = [rate_limiter.host(f"host-{number}.example") for number in range(HOSTS_KEPT - 1)]
    for host in hosts:
        rate_limiter.answered(host, Headers())
    rate_limiter.host("one-more.example")
    assert [each.name for each in rate_limiter] == [*(each.name for each in hosts), "one-more.example"]


def test_the_longest_idle_host_is_forgotten(rate_limiter):
    hosts = {name: rate_limiter.host(name) for name in map(str, range(HOSTS_KEPT))}
    rate_limiter.host("0")
    rate_limiter.host("one more")
    assert rate_limiter.host("0") is hosts["0"]
    assert "1" not in {host.name for host in rate_limiter}


@pytest.mark.req("RG-118")
def test_registries_that_lead_to_one_host_share_its_slots_and_nothing_else(rate_limiter):
    """Also when the state of the host itself, which answers nothing, has been forgotten for invented ones."""
    own, led = rate_limiter.host("auth.example"), rate_limiter.host("auth.example", "evil.example")
    queue = own.queue
    assert led.queue is queue
    rate_limiter.limited(led, 86400.0)
    rate_limiter.answered(led, Headers())
    assert rate_limiter.busy("auth.example", "evil.example")
    assert not rate_limiter.busy("auth.example")
    for number in range(HOSTS_KEPT):
        rate_limiter.host(f"host-{number}.example")
    assert own not in list(rate_limiter)
    assert rate_limiter.host("auth.example").queue is queue


def test_asking_whether_a_host_is_busy_does_not_remember_it(rate_limiter):
    assert not rate_limiter.busy("never-asked.example")
    assert list(rate_limiter) == []
