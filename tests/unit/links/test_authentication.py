"""Basic and Digest against the examples of their RFCs."""

from __future__ import annotations

import pytest

from chappe.links.authentication import Challenge, answer, basic, challenges, digest

USER, PASSWORD = "Mufasa", "Circle of Life"
NONCE = "7ypf/xlj9XXwfDPEoM4URrv/xwf94BcCAzFZH4GiTo0v"
CNONCE = "f2/wE4q74E6zIJEtWaHKaf5wv/H5QzzpXusqGemxURZJ"
EXAMPLE = (
    f'Digest realm="http-auth@example.org", qop="auth, auth-int", algorithm={{}}, nonce="{NONCE}", '
    'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"'
)


@pytest.mark.spec("MR-032")
@pytest.mark.parametrize(
    ("algorithm", "response"),
    [
        ("MD5", "8ca523f5e9506fed4657c9700eebdbec"),
        ("SHA-256", "753927fa0e85d155564e2e272a28d1802ca10daf4496794697cf8db5856cb6c1"),
    ],
)
def test_the_examples_of_the_digest_rfc(algorithm: str, response: str) -> None:
    [challenge] = challenges(EXAMPLE.format(algorithm))
    made = digest(challenge, USER, PASSWORD, "GET", "/dir/index.html", CNONCE)
    assert made is not None
    assert f'response="{response}"' in made
    assert f"algorithm={algorithm}" in made
    assert 'opaque="FQhe/qaU925kfnzjCev0ciny7QMkPqMAFRtzCUYo5tdS"' in made
    assert "qop=auth, nc=00000001" in made


def test_a_hashed_name_is_that_of_the_rfc() -> None:
    """RFC 7616 3.9.2 hashes with SHA-512-256, which is not offered here; the form is the same."""
    [challenge] = challenges('Digest realm="r", nonce="n", algorithm=SHA-256, qop="auth", userhash=true')
    made = digest(challenge, "Jäsøn Doe", "Secret", "GET", "/", "c")
    assert made is not None
    assert "userhash=true" in made
    assert "Doe" not in made


def test_the_example_of_the_basic_rfc() -> None:
    assert basic("Aladdin", "open sesame") == "Basic QWxhZGRpbjpvcGVuIHNlc2FtZQ=="


def test_several_challenges_in_one_header_are_kept_apart() -> None:
    header = 'Negotiate dG9rZW4=, Basic realm="a, \\"b\\"", charset="UTF-8", Digest nonce=n, realm="x",,NTLM'
    found = challenges(header)
    assert [challenge.scheme for challenge in found] == ["Negotiate", "Basic", "Digest", "Ntlm"]
    assert found[1].parameters == {"realm": 'a, "b"', "charset": "UTF-8"}
    assert found[2].parameters == {"nonce": "n", "realm": "x"}


def test_the_strongest_that_is_known_is_answered() -> None:
    md5 = Challenge("Digest", {"nonce": "n", "realm": "r", "algorithm": "MD5"})
    sha = Challenge("Digest", {"nonce": "n", "realm": "r", "algorithm": "SHA-256"})
    strange = Challenge("Digest", {"nonce": "n", "realm": "r", "algorithm": "SHA-512-256"})
    body = Challenge("Digest", {"nonce": "n", "realm": "r", "algorithm": "SHA-256", "qop": "auth-int"})

    def made(*offered: Challenge) -> tuple[str, str] | None:
        return answer(offered, "u", "p", "CONNECT", "h:1", lambda: "c")

    both = made(Challenge("Basic"), md5, sha)
    assert both is not None
    assert "algorithm=SHA-256" in both[1]
    assert (made(strange, Challenge("Basic")) or ("",))[0] == "Basic"
    assert made(strange) is None
    assert made(body) is None
    assert made(Challenge("Negotiate")) is None
    assert answer([Challenge("Basic")], "a:b", "p", "CONNECT", "h:1", lambda: "c") is None  # no such user in Basic


@pytest.mark.parametrize(
    "header", ['Digest "', "=,=,=", 'Digest nonce="' + "\\" * 9999, ", " * 5000, "a " * 5000, "\x00"]
)
def test_what_nobody_can_read_is_no_challenge_that_can_be_answered(header: str) -> None:
    found = challenges(header)
    assert len(found) <= 16
    assert answer(found, "u", "p", "CONNECT", "h:1", lambda: "c") is None
