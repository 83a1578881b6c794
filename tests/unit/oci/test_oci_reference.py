"""References: every text either names one image for certain or is refused with a reason."""

import pytest

from polyarch.oci.reference import InvalidReference, Reference, check_digest, parse, parse_located

pytestmark = pytest.mark.req("RG-010", "RG-014")

A64, A96, A128 = "a" * 64, "a" * 96, "a" * 128
DIGEST = f"sha256:{A64}"

VALID = [
    pytest.param("nginx", "docker.io/library/nginx:latest", "nginx:latest", id="one component is in library"),
    pytest.param("nginx:1.25", "docker.io/library/nginx:1.25", "nginx:1.25", id="a tag"),
    pytest.param("team/app", "docker.io/team/app:latest", "team/app:latest", id="no host is docker.io"),
    pytest.param("docker.io/nginx", "docker.io/library/nginx:latest", "nginx:latest", id="docker.io written out"),
    pytest.param("index.docker.io/nginx", "docker.io/library/nginx:latest", "nginx:latest", id="index.docker.io"),
    pytest.param(
        "registry-1.docker.io/a/b", "docker.io/a/b:latest", "a/b:latest", id="registry-1.docker.io is docker.io"
    ),
    pytest.param("docker.io/library/a/b", "docker.io/library/a/b:latest", "library/a/b:latest", id="library kept"),
    pytest.param(
        "localhost:5000", "docker.io/library/localhost:5000", "localhost:5000", id="a host alone is a repository"
    ),
    pytest.param("localhost/a", "localhost/a:latest", "localhost/a:latest", id="localhost is a host"),
    pytest.param("localhost:5000/a:b", "localhost:5000/a:b", "localhost:5000/a:b", id="a colon makes a host"),
    pytest.param("QUAY.io/a", "quay.io/a:latest", "quay.io/a:latest", id="hosts are lower-cased"),
    pytest.param("quay.io:443/a", "quay.io:443/a:latest", "quay.io:443/a:latest", id="port 443 stays"),
    pytest.param("[::1]:5000/a:1", "[::1]:5000/a:1", "[::1]:5000/a:1", id="an IPv6 host"),
    pytest.param("[2001:DB8::1]/a", "[2001:db8::1]/a:latest", "[2001:db8::1]/a:latest", id="IPv6 without port"),
    pytest.param("docker://quay.io/a:1", "quay.io/a:1", "quay.io/a:1", id="docker:// is dropped"),
    pytest.param(f"quay.io/a@{DIGEST}", f"quay.io/a@{DIGEST}", f"quay.io/a@{DIGEST}", id="a digest has no tag"),
    pytest.param(
        f"quay.io/a:1@{DIGEST}", f"quay.io/a:1@{DIGEST}", f"quay.io/a:1@{DIGEST}", id="tag and digest both kept"
    ),
    pytest.param(f"q.io/a@sha384:{A96}", f"q.io/a@sha384:{A96}", f"q.io/a@sha384:{A96}", id="sha384"),
    pytest.param(f"q.io/a@sha512:{A128}", f"q.io/a@sha512:{A128}", f"q.io/a@sha512:{A128}", id="sha512"),
    pytest.param("q.io/a__b/c.d/e---f", "q.io/a__b/c.d/e---f:latest", "q.io/a__b/c.d/e---f:latest", id="separators"),
    pytest.param("docker.io/x.y/a", "docker.io/x.y/a:latest", "docker.io/x.y/a:latest", id="a host's likeness kept"),
    pytest.param(
        f"docker.io/library/{A64}",
        f"docker.io/library/{A64}:latest",
        f"library/{A64}:latest",
        id="an image id's likeness kept",
    ),
    pytest.param("oci:layout", "oci:layout", "oci:layout", id="a layout directory"),
    pytest.param("oci:/tmp/layout:v1", "oci:/tmp/layout:v1", "oci:/tmp/layout:v1", id="a layout with tag"),
    pytest.param(f"oci:a/b@{DIGEST}", f"oci:a/b@{DIGEST}", f"oci:a/b@{DIGEST}", id="a layout with digest"),
    pytest.param("oci:C:x/b", "oci:C:x/b", "oci:C:x/b", id="a colon before the last component is the path's"),
]


@pytest.mark.parametrize(("text", "canonical", "familiar"), VALID)
def test_a_text_names_one_image(text: str, canonical: str, familiar: str) -> None:
    reference = parse(text)
    assert reference.canonical == canonical
    assert reference.familiar == familiar
    assert parse(canonical) == reference
    assert parse(familiar) == reference
    assert str(reference) == canonical


INVALID = [
    # text, problem, position, hint
    pytest.param("", "empty", None, "quay.io/team/app:1.0", id="nothing"),
    pytest.param("docker://", "no image name", None, "quay.io", id="nothing after the transport"),
    pytest.param("quay.io/a b", "white space", 10, "remove it", id="white space within"),
    pytest.param(" nginx", "white space", 1, "write 'nginx'", id="white space before"),
    pytest.param("nginx\n", "white space", 6, "write 'nginx'", id="a line's end"),
    pytest.param("a\u00a0b", "white space", 2, "remove it", id="white space of other scripts"),
    pytest.param("a\x00b", "control character", 2, "remove it", id="a control character"),
    pytest.param(":x", "begins with ':'", 1, "", id="leading colon"),
    pytest.param("@x", "begins with '@'", 1, "", id="leading at sign"),
    pytest.param("/x", "begins with '/'", 1, "", id="leading slash"),
    pytest.param("docker:///x", "begins with '/'", 10, "", id="leading slash after the transport"),
    pytest.param(f"a@{DIGEST}@{DIGEST}", "two '@'", 74, "keep one", id="two digests"),
    pytest.param("nginx:", "tag after ':' is empty", 6, "leave ':' out", id="empty tag"),
    pytest.param("nginx@", "digest after '@' is empty", 7, "leave '@' out", id="empty digest"),
    pytest.param("quay.io//a", "'//'", 9, "one '/'", id="a double slash"),
    pytest.param("quay.io/a/", "ends with '/'", 10, "write 'quay.io/a'", id="a trailing slash"),
    pytest.param("quay.io/:1", "no name before ':'", 9, "NAME:TAG", id="no name before the tag"),
    pytest.param("https://quay.io/a", "'https://'", 1, "write 'quay.io/a' without", id="a URL"),
    pytest.param("docker-daemon:a:b", "':'", 14, "", id="another transport"),
    pytest.param("quay.io/Team/app", "upper-case letter 'T'", 9, "write 'team/app'", id="upper case"),
    pytest.param("quay.io/a..b", "'a..b'", 10, "one '.'", id="two dots"),
    pytest.param("quay.io/a___b", "'a___b'", 10, "two '_'", id="three underscores"),
    pytest.param("quay.io/-a", "'-a'", 9, "", id="a leading hyphen"),
    pytest.param("quay.io/a-", "'a-'", 10, "", id="a trailing hyphen"),
    pytest.param("quay.io/ä", "'ä'", 9, "", id="another script"),
    pytest.param(A64, "image id", None, "NAME@sha256", id="an image id"),
    pytest.param("quay.io/" + "a" * 248, "256 characters", None, "shorter", id="too long a name"),
    pytest.param("quay.io:0/a", "'0' is not a port", 1, "HOST[:PORT]", id="port 0"),
    pytest.param("quay.io:65536/a", "'65536' is not a port", 1, "HOST[:PORT]", id="port 65536"),
    pytest.param("quay.io:x/a", "'x' is not a port", 1, "HOST[:PORT]", id="a port of letters"),
    pytest.param("quay.io:/a", "'' is not a port", 1, "HOST[:PORT]", id="an empty port"),
    pytest.param("quay..io/a", "'quay..io' is not a host", 1, "", id="an empty host label"),
    pytest.param("user:pw@quay.io/a", "digest", 9, "", id="user and password"),
    pytest.param("[::1/a", "IPv6", 1, "", id="an open bracket"),
    pytest.param("[fe80::1%eth0]/a", "zone", 1, "", id="an IPv6 zone"),
    pytest.param("[12345::]/a", "not an IPv6 address", 1, "", id="no IPv6 address"),
    pytest.param("qua\u212a.io/a", "xn--", 1, "", id="a host of look-alike letters"),
    pytest.param("quay.io/a:-x", "'-'", 11, "not first", id="a tag's first character"),
    pytest.param("quay.io/a:x+y", "'+'", 12, "letters, digits", id="a tag's other characters"),
    pytest.param("quay.io/a:" + "x" * 129, "128 characters, not 129", 11, "shorten", id="too long a tag"),
    pytest.param("a@sha256:abc", "sha256 digest has 64 hexadecimal digits, not 3", 3, "", id="too short a digest"),
    pytest.param(f"a@sha384:{A64}", "96 hexadecimal digits, not 64", 3, "", id="the length of another algorithm"),
    pytest.param(f"a@sha256:{'A' * 64}", "lower-case", 3, f"write a@{DIGEST}", id="upper-case digits"),
    pytest.param(f"a@sha256:{'g' * 64}", "64 lower-case hexadecimal", 3, "", id="other letters"),
    pytest.param(f"a@md5:{'a' * 32}", "unknown digest algorithm 'md5'", 3, "", id="another algorithm"),
    pytest.param(f"a@{A64}", "ALGORITHM:HEX", 3, "", id="no algorithm"),
    pytest.param("oci:", "no directory", None, "oci:DIRECTORY", id="a layout without directory"),
    pytest.param("oci:dir/", "ends with '/'", 8, "write 'oci:dir'", id="a layout's trailing slash"),
    pytest.param(f"oci:d:t@{DIGEST}", "not both", None, "leave one", id="a layout with tag and digest"),
    pytest.param("oci:my dir", "white space", 7, "", id="a layout with white space"),
]


@pytest.mark.req("RG-015")
@pytest.mark.parametrize(("text", "problem", "position", "hint"), INVALID)
def test_other_texts_are_refused_with_place_and_advice(
    text: str, problem: str, position: int | None, hint: str
) -> None:
    with pytest.raises(InvalidReference) as caught:
        parse(text)
    error = caught.value
    assert error.text == text
    assert problem in error.problem
    assert error.position == position
    assert hint in error.hint
    assert error.hint, "says what to write instead"
    assert error.problem in str(error)
    assert error.hint in str(error)


@pytest.mark.req("RG-015")
def test_a_long_text_does_not_flood_the_message() -> None:
    """The text is named, shortened where nobody would read it."""
    with pytest.raises(InvalidReference) as caught:
        parse("x" * 100_000 + "!")
    assert len(str(caught.value)) < 1000


@pytest.mark.req("RG-012")
def test_the_name_of_255_characters_is_the_longest() -> None:
    """Host plus repository."""
    assert parse("quay.io/" + "a" * 247).name == "quay.io/" + "a" * 247


@pytest.mark.req("RG-011")
def test_requests_for_docker_hub_go_to_its_registry() -> None:
    assert parse("nginx").host_for_requests == "registry-1.docker.io"
    assert parse("quay.io/a").host_for_requests == "quay.io"


@pytest.mark.req("RG-013")
def test_the_digest_decides_every_request() -> None:
    reference = parse(f"quay.io/a:1@{DIGEST}")
    assert (reference.selector, reference.tag) == (DIGEST, "1")
    assert parse("quay.io/a:1").selector == "1"
    assert parse("quay.io/a:1").at(DIGEST) == reference


@pytest.mark.req("RG-002")
def test_parts_are_named_as_the_interface_says() -> None:
    """The fields of a reference, None where absent."""
    assert parse("quay.io/a/b:1") == Reference(
        transport="docker", registry="quay.io", repository="a/b", tag="1", digest=None
    )
    assert parse("oci:d") == Reference(transport="oci", registry="", repository="d", tag=None, digest=None)


@pytest.mark.req("RG-092")
def test_a_located_name_takes_its_first_component_as_host() -> None:
    """Names made by registry configuration always begin with a host."""
    assert parse_located("mirror/team/app:1") == Reference("docker", "mirror", "team/app", "1")
    assert parse_located("docker.io/nginx").repository == "library/nginx"
    with pytest.raises(InvalidReference, match="no repository after the host"):
        parse_located("mirror:5000")


@pytest.mark.req("RG-013")
@pytest.mark.parametrize(
    ("digest", "problem"),
    [
        (DIGEST, None),
        ("sha256:" + "A" * 64, "lower-case"),
        ("", "ALGORITHM:HEX"),
        (f"sha256:{'a' * 63}/", "nothing else"),
    ],
    ids=["a digest", "upper case", "nothing", "a path in disguise"],
)
def test_a_digest_is_checked_in_full(digest: str, problem: str | None) -> None:
    """A digest is put in URLs, so nothing else may pass for one."""
    found = check_digest(digest)
    assert found is None if problem is None else problem in str(found)
