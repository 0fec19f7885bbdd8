"""Signed tokens: what is believed, and every way not to be."""

from __future__ import annotations

import base64
import hashlib
import hmac
import json
import stat
from pathlib import Path

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric.ed448 import Ed448PrivateKey
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from chappe.errors import ConfigError, RefusedError
from chappe.security import Rule, Tokens
from chappe.security.tokens import (
    Revocations,
    SigningKey,
    TokenVerifier,
    create_key,
    issue,
    load_public_keys,
    load_revocations,
    load_signing_key,
    unverified,
    verify,
)

NOW = 1_800_000_000 * 1_000_000_000
SECOND = 1_000_000_000


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("tokens")
    create_key(folder)
    return folder


@pytest.fixture(scope="module")
def key(folder: Path) -> SigningKey:
    return load_signing_key(folder / "token.key")


@pytest.fixture(scope="module")
def keys(folder: Path) -> dict[str, object]:
    return dict(load_public_keys([folder / "token.pub"]))


def claims(**changes: object) -> dict[str, object]:
    told: dict[str, object] = {
        "sub": "lab", "role": "client", "aud": "chappe", "iat": NOW // SECOND, "exp": NOW // SECOND + 60, "jti": "1",
    }  # fmt: skip
    return {name: value for name, value in {**told, **changes}.items() if value is not None}


def signed(key: SigningKey, **changes: object) -> str:
    return jwt.encode(claims(**changes), key.private, algorithm="EdDSA", headers={"kid": key.kid})


def part(content: object) -> str:
    return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()


@pytest.mark.spec("NS-072")
def test_a_token_proves_name_role_expiry_and_rules(key: SigningKey, keys: dict) -> None:
    rules = (Rule("publish", "lab/#"), Rule(("subscribe", "watch"), ("a/+", "b"), deny=True))
    identity = verify(issue(key, "lab", "client", 3600, NOW, rules), keys, NOW + 1800 * SECOND)
    assert (identity.name, identity.role, identity.how) == ("lab", "client", "token")
    assert identity.expires_ns == NOW + 3600 * SECOND
    assert identity.grants == rules
    assert identity.fingerprint == key.kid
    assert len(identity.serial) == 32


def test_two_tokens_have_different_identifiers(key: SigningKey, keys: dict) -> None:
    serials = {verify(issue(key, "lab", "client", 60, NOW), keys, NOW).serial for _ in range(10)}
    assert len(serials) == 10


@pytest.mark.parametrize(("at_s", "believed"), [(-10, False), (-4, True), (0, True), (64, True), (65, False)])
def test_time_is_judged_with_a_small_leeway(key: SigningKey, keys: dict, at_s: int, believed: bool) -> None:
    token = issue(key, "lab", "client", 60, NOW)
    if believed:
        assert verify(token, keys, NOW + at_s * SECOND)
    else:
        with pytest.raises(RefusedError, match="expired 5 s ago" if at_s > 0 else "not valid yet"):
            verify(token, keys, NOW + at_s * SECOND)


def test_another_key_is_refused_by_its_id(tmp_path: Path, key: SigningKey, keys: dict) -> None:
    other = create_key(tmp_path)
    with pytest.raises(RefusedError, match=f"signed by key '{other.kid}'.*{key.kid}"):
        verify(issue(other, "lab", "admin", 60, NOW), keys, NOW)


def test_another_key_under_a_known_id_is_refused(tmp_path: Path, key: SigningKey, keys: dict) -> None:
    forged = SigningKey(create_key(tmp_path).private, key.kid)
    with pytest.raises(RefusedError, match="signature of the token is wrong"):
        verify(issue(forged, "lab", "admin", 60, NOW), keys, NOW)


@pytest.mark.parametrize("algorithm", ["none", "None", "NONE", "HS256", "RS256", "ES256", ""])
def test_only_eddsa_is_accepted(key: SigningKey, keys: dict, algorithm: str) -> None:
    header = {"alg": algorithm, "typ": "JWT", "kid": key.kid}
    signature = issue(key, "lab", "client", 60, NOW).rsplit(".", 1)[1]
    for end in ("", signature):
        with pytest.raises(RefusedError, match=r"only EdDSA is accepted|cannot be read"):
            verify(f"{part(header)}.{part(claims())}.{end}", keys, NOW)


def test_the_public_key_is_no_shared_secret(folder: Path, key: SigningKey, keys: dict) -> None:
    body = f"{part({'alg': 'HS256', 'typ': 'JWT', 'kid': key.kid})}.{part(claims(role='admin'))}"
    mac = hmac.new((folder / "token.pub").read_bytes(), body.encode(), hashlib.sha256).digest()
    forged = f"{body}.{base64.urlsafe_b64encode(mac).rstrip(b'=').decode()}"
    with pytest.raises(RefusedError, match="'HS256'; only EdDSA"):
        verify(forged, keys, NOW)


def test_another_curve_of_the_same_algorithm_is_refused(key: SigningKey, keys: dict) -> None:
    token = jwt.encode(claims(), Ed448PrivateKey.generate(), algorithm="EdDSA", headers={"kid": key.kid})
    with pytest.raises(RefusedError, match="signature of the token is wrong"):
        verify(token, keys, NOW)


def test_a_token_with_changed_claims_is_refused(key: SigningKey, keys: dict) -> None:
    header, _, signature = issue(key, "lab", "client", 60, NOW).split(".")
    with pytest.raises(RefusedError, match="signature of the token is wrong"):
        verify(f"{header}.{part(claims(role='admin'))}.{signature}", keys, NOW)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.data())
def test_a_token_changed_anywhere_never_proves_anything_else(key: SigningKey, keys: dict, data: st.DataObject) -> None:
    token = issue(key, "lab", "client", 60, NOW)
    place = data.draw(st.integers(0, len(token) - 1))
    letter = data.draw(st.sampled_from("Aa0_-.=é"))
    changed = token[:place] + letter + token[place + 1 :]
    try:
        identity = verify(changed, keys, NOW)
    except RefusedError:
        return
    # The last letter of a base64 part has unused bits: another text of the very same bytes is the same token.
    assert identity == verify(token, keys, NOW)


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"exp": None}, "exp"),
        ({"jti": None}, "jti"),
        ({"sub": None}, "sub"),
        ({"iat": None}, "iat"),
        ({"aud": None}, "aud"),
        ({"aud": "others"}, "not meant for 'chappe'"),
        ({"exp": "soon"}, "exp|Expected `int`"),
        ({"exp": 1e300}, "cannot be read"),
        ({"role": "king"}, "role"),
        ({"role": "node"}, "identifies itself by certificate"),
        ({"sub": "a/#"}, "not a name"),
        ({"nbf": NOW // SECOND + 30}, "not valid yet"),
        ({"rules": [{"action": "publish", "pattern": "a/#/b"}]}, "rule 1 of the token.*last level"),
        ({"rules": [{"action": "fly", "pattern": "a"}]}, "fly"),
    ],
)
def test_claims_that_are_missing_or_wrong_are_named(
    key: SigningKey, keys: dict, changes: dict[str, object], why: str
) -> None:
    with pytest.raises(RefusedError, match=why):
        verify(signed(key, **changes), keys, NOW)


@pytest.mark.parametrize("junk", ["", ".", "..", "a.b.c", "é.é.é", "\x00", "eyJ" * 3000, "." * 5000])
def test_junk_is_refused_with_a_reason(keys: dict, junk: str) -> None:
    with pytest.raises(RefusedError, match="token"):
        verify(junk, keys, NOW)


def test_revocation_by_identifier_and_by_name(tmp_path: Path, key: SigningKey, keys: dict) -> None:
    token, other = issue(key, "lab", "client", 60, NOW), issue(key, "pmu-1", "client", 60, NOW)
    serial = verify(token, keys, NOW).serial
    (tmp_path / "revoked").write_text(f"# lost\n\n{serial}   # the laptop\n name:pmu-1\n")
    revoked = load_revocations(tmp_path / "revoked")
    assert revoked == Revocations(frozenset({serial}), frozenset({"pmu-1"}))
    with pytest.raises(RefusedError, match=f"token {serial} of 'lab' is revoked"):
        verify(token, keys, NOW, revoked=revoked)
    with pytest.raises(RefusedError, match="all tokens of 'pmu-1' are revoked"):
        verify(other, keys, NOW, revoked=revoked)
    assert verify(issue(key, "lab", "client", 60, NOW), keys, NOW, revoked=revoked)


def test_nodes_get_no_tokens_and_rules_are_for_the_bearer(key: SigningKey) -> None:
    with pytest.raises(ConfigError, match="by certificate"):
        issue(key, "west", "node", 60, NOW)
    with pytest.raises(ConfigError, match="leave out names and roles"):
        issue(key, "lab", "client", 60, NOW, (Rule("publish", "a", names=("x",)),))
    with pytest.raises(ConfigError, match="at least a second"):
        issue(key, "lab", "client", 0, NOW)
    with pytest.raises(ConfigError, match="fewer rules"):
        issue(key, "lab", "client", 60, NOW, tuple(Rule("publish", "x" * 1000) for _ in range(10)))


def test_keys_are_private_and_never_overwritten(tmp_path: Path) -> None:
    create_key(tmp_path / "keys")
    secret = (tmp_path / "keys" / "token.key").read_bytes()
    assert stat.S_IMODE((tmp_path / "keys" / "token.key").stat().st_mode) == 0o600
    with pytest.raises(ConfigError, match="exists already"):
        create_key(tmp_path / "keys")
    assert (tmp_path / "keys" / "token.key").read_bytes() == secret


def test_a_key_in_the_wrong_place_is_named(folder: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"token\.key: no public key.*give token\.pub"):
        TokenVerifier(Tokens(keys=(str(folder / "token.key"),)))
    with pytest.raises(ConfigError, match=r"token\.pub: there is no unencrypted private key"):
        load_signing_key(folder / "token.pub")
    with pytest.raises(ConfigError, match="gone: the list of revoked tokens cannot be read"):
        TokenVerifier(Tokens(keys=(str(folder / "token.pub"),), revoked=str(tmp_path / "gone")))


def test_a_signing_key_does_not_print_itself(key: SigningKey) -> None:
    assert "private" not in repr(key)


def test_a_token_can_be_looked_at_without_a_key(key: SigningKey) -> None:
    header, told = unverified(issue(key, "lab", "client", 60, NOW))
    assert (header["alg"], told["sub"]) == ("EdDSA", "lab")
    with pytest.raises(RefusedError, match="this is no token"):
        unverified("junk")
