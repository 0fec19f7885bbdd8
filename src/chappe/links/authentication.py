"""HTTP authentication without I/O: Basic (RFC 7617) and Digest (RFC 7616) with SHA-256 or MD5."""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

_TOKEN = re.compile(r"[!#$%&'*+\-.^_`|~0-9A-Za-z]+")
_PARAMETER = re.compile(
    r"([!#$%&'*+\-.^_`|~0-9A-Za-z]+)\s*=\s*(?:\"((?:[^\"\\]|\\.)*)\"|([!#$%&'*+\-.^_`|~0-9A-Za-z]+))"
)
_TOKEN68 = re.compile(r"[A-Za-z0-9\-._~+/]+=*")
_SEPARATOR = re.compile(r"[\s,]*")
CHALLENGES_MAX = 16  # in one header

HASHES: dict[str, Callable[[bytes], str]] = {  # the strongest first
    "SHA-256": lambda data: hashlib.sha256(data).hexdigest(),
    "MD5": lambda data: hashlib.md5(data, usedforsecurity=False).hexdigest(),
}


@dataclass(frozen=True, slots=True)
class Challenge:
    """One way to authenticate that a server offers."""

    scheme: str  # as it is usually written: Basic, Digest
    parameters: dict[str, str] = field(default_factory=dict)


def challenges(header: str) -> list[Challenge]:
    """What a WWW-Authenticate or Proxy-Authenticate header offers; unreadable parts are passed over."""
    found: list[Challenge] = []
    at = 0
    while len(found) <= CHALLENGES_MAX:
        at = _skip(header, at)
        if at >= len(header):
            break
        parameter = _PARAMETER.match(header, at)
        if parameter is not None and found:
            quoted, plain = parameter[2], parameter[3]
            value = re.sub(r"\\(.)", r"\1", quoted) if quoted is not None else plain
            found[-1].parameters.setdefault(parameter[1].lower(), value)
            at = parameter.end()
            continue
        word = _TOKEN.match(header, at)
        if word is None:
            at += 1
            continue
        found.append(Challenge(word[0].capitalize()))
        at = _past_token68(header, word.end())
    return found[:CHALLENGES_MAX]


def _skip(header: str, at: int) -> int:
    spaces = _SEPARATOR.match(header, at)
    return spaces.end() if spaces else at


def _past_token68(header: str, at: int) -> int:
    """Behind a scheme there may be one value without a name, as in `Negotiate dG9rZW4=`."""
    start = at + 1 if header[at : at + 1] == " " else at
    if _PARAMETER.match(header, start):
        return at
    value = _TOKEN68.match(header, start)
    end = value.end() if value else at
    return end if value and header[end : end + 1] in ("", ",", " ") and start > at else at


def answer(
    offered: Sequence[Challenge], user: str, password: str, method: str, uri: str, nonce: Callable[[], str]
) -> tuple[str, str] | None:
    """Scheme and value of the header that answers the best challenge; None if none of them is known."""
    for name in HASHES:
        for challenge in offered:
            algorithm = challenge.parameters.get("algorithm", "MD5").upper()
            if (
                challenge.scheme == "Digest"
                and algorithm in (name, f"{name}-SESS")
                and challenge.parameters.get("nonce")
            ):
                made = digest(challenge, user, password, method, uri, nonce())
                if made is not None:
                    return "Digest", made
    if any(challenge.scheme == "Basic" for challenge in offered) and ":" not in user:
        return "Basic", basic(user, password)
    return None


def basic(user: str, password: str) -> str:
    """The value of the header."""
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode("ascii")


def digest(challenge: Challenge, user: str, password: str, method: str, uri: str, cnonce: str) -> str | None:
    """The value of the header; None if the challenge wants the body to be protected, too, and nothing less."""
    given = challenge.parameters
    written = given.get("algorithm", "MD5")
    algorithm, session, _ = written.upper().partition("-SESS")
    hashed = HASHES[algorithm]

    def h(text: str) -> str:
        return hashed(text.encode())

    realm, server_nonce = given.get("realm", ""), given["nonce"]
    offers = [word.strip().lower() for word in given.get("qop", "").split(",") if word.strip()]
    if offers and "auth" not in offers:
        return None
    secret = h(f"{user}:{realm}:{password}")
    if session:
        secret = h(f"{secret}:{server_nonce}:{cnonce}")
    request = h(f"{method}:{uri}")
    count = "00000001"  # a nonce is used once: each attempt is a connection of its own
    if offers:
        response = h(f"{secret}:{server_nonce}:{count}:{cnonce}:auth:{request}")
    else:
        response = h(f"{secret}:{server_nonce}:{request}")
    hide = given.get("userhash", "").lower() == "true"
    name = h(f"{user}:{realm}") if hide else user
    parts = [f"username={_quoted(name)}", f"realm={_quoted(realm)}", f"nonce={_quoted(server_nonce)}",
             f"uri={_quoted(uri)}", f'response="{response}"']  # fmt: skip
    if "algorithm" in given:
        parts.append(f"algorithm={written}")
    if "opaque" in given:
        parts.append(f"opaque={_quoted(given['opaque'])}")
    if offers:
        parts += ["qop=auth", f"nc={count}", f"cnonce={_quoted(cnonce)}"]
    elif session:
        parts.append(f"cnonce={_quoted(cnonce)}")
    if hide:
        parts.append("userhash=true")
    return "Digest " + ", ".join(parts)


def _quoted(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
