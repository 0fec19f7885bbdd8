"""Two years of a mesh in virtual time, with nothing but files that change and SIGHUP.

Certificates, authorities, revocation lists and token keys are real, the network map is that of nodes, and days are
milliseconds: certificates last 60 days and are renewed every 30, the authority is replaced, token keys are rotated.
"""

from __future__ import annotations

import random
from datetime import datetime
from pathlib import Path

import pytest

from chappe.errors import RefusedError
from chappe.linkstate.network_map import LinkState
from chappe.linkstate.parts import Parts
from chappe.linkstate.settings import SECOND, Settings
from chappe.runtime.mesh.signing import Signer, Verifier
from chappe.security import tokens
from chappe.security.authority import Authority, load_certificate
from chappe.security.certificates import identity_of, utc
from chappe.security.config import Tls, Tokens
from chappe.security.credentials import Credentials
from chappe.security.identity import Identity
from tests.support.linkstates import LinkStates

DAY = 86_400 * SECOND
NAMES = "abcd"
LINKS = ("ab", "bc", "cd", "ad")
LASTS, RENEWED = 60, 30  # days
SETTINGS = Settings(refresh_ns=DAY, lifetime_ns=3 * DAY)


class Mesh(LinkStates):
    """Nodes with credentials of their own, all of which are files in one folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.now_ns = SECOND
        self.skew_ns = {}
        self.authorities = [Authority.create(folder / "ca0", self.now, days=3650)]
        self.keys = [tokens.create_key(self._made("key0"))]
        for name in (*NAMES, "z"):
            self.issue(name)
        self.believe()
        self.credentials = {
            name: Credentials(self.tls(name), self.tokens(), lambda: self.wall_ns("")) for name in NAMES
        }
        self.sessions: dict[tuple[str, str], Identity] = {}  # (who believes, whom)
        super().__init__(dict.fromkeys(NAMES, ""), SETTINGS)
        for pair in LINKS:
            self.connect(*pair)
        for a, b in LINKS:
            self.shown(a, b)
            self.shown(b, a)
        self.run(DAY)

    @property
    def now(self) -> datetime:
        return utc(self.wall_ns(""))

    def start(self, name: str) -> LinkState:
        credentials = self.credentials[name]
        verifier = Verifier(credentials, lambda: self.wall_ns(""))
        state = LinkState(Parts(
            self.addresses[name], self.settings, random.Random(1), Signer(credentials), verifier,
            wall=lambda: self.wall_ns(name),
        ))  # fmt: skip
        self.nodes[name] = state
        self.verifiers = {**getattr(self, "verifiers", {}), name: verifier}
        return state

    def issue(self, name: str) -> None:
        """A certificate of the newest authority."""
        authority = self.authorities[-1]
        authority.issue(name, "node", self.now, days=LASTS, replace=True)
        for end in ("pem", "key"):
            path = self.folder / f"{name}.{end}"
            path.write_bytes((authority.folder / f"{name}.{end}").read_bytes())
            path.chmod(0o600)

    def believe(self) -> None:
        """Nodes find the present authorities and token keys in their files."""
        for end in ("pem", "crl"):
            texts = [(authority.folder / f"ca.{end}").read_bytes() for authority in self.authorities]
            (self.folder / f"ca.{end}").write_bytes(b"".join(texts))
        for at in range(2):  # the newest two; before there are two, one of them twice
            number = len(self.keys) - 1 - min(at, len(self.keys) - 1)
            (self.folder / f"token{at}.pub").write_bytes((self.folder / f"key{number}" / "token.pub").read_bytes())

    def hangup(self, name: str) -> None:
        """SIGHUP: what a node does then, and its neighbours see the certificate that it shows from now on."""
        before = self.credentials[name].own
        self.credentials[name].reload()
        state = self.nodes[name]
        self.put(name, state.revalidate(self.verifiers[name].believed, self.now_ns))
        if self.credentials[name].own != before:
            self.put(name, state.restate(self.now_ns))
            for link in LINKS:
                if name in link:
                    self.shown(link.replace(name, ""), name)
        self.run(SECOND)

    def shown(self, at: str, name: str) -> None:
        own = self.credentials[name].own
        assert own is not None
        self.sessions[at, name] = self.credentials[at].identify("node", name, own, None)

    def rotate(self) -> None:
        """A new key for tokens; the one before it is believed for a while."""
        self.keys.append(tokens.create_key(self._made(f"key{len(self.keys)}")))
        self.believe()

    def tls(self, name: str) -> Tls:
        where = self.folder
        ca, crl = f"{where}/ca.pem", f"{where}/ca.crl"
        return Tls(ca=ca, crl=crl, cert=f"{where}/{name}.pem", key=f"{where}/{name}.key")

    def tokens(self) -> Tokens:
        return Tokens(keys=(f"{self.folder}/token0.pub", f"{self.folder}/token1.pub"))

    def _made(self, name: str) -> Path:
        (self.folder / name).mkdir()
        return self.folder / name

    def check(self) -> None:
        """Nobody is out of a map, and no session of a valid identity would be cut."""
        for name, state in self.nodes.items():
            assert state.members() == list(NAMES), (name, self.now)
        for (at, name), identity in self.sessions.items():
            assert self.credentials[at].lapsed(identity) is None, (at, name, self.now)


@pytest.mark.timeout(300)
def test_two_years_of_renewals_by_reload_alone(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path)
    stolen = identity_of(load_certificate(tmp_path / "z.pem"))  # of a node that nobody renews
    assert mesh.credentials["a"].identify("node", "z", stolen, None) == stolen
    token = tokens.issue(mesh.keys[-1], "lab", "client", 100 * 86_400, mesh.wall_ns(""))
    reader = mesh.credentials["a"].identify("client", "lab", None, token)
    first = mesh.authorities[0]
    cut: dict[str, int] = {}
    for day in range(1, 731):
        for at, name in enumerate(NAMES):
            if (day + 7 * at) % RENEWED == 0:
                mesh.issue(name)
                mesh.hangup(name)
        if day == 300:  # a second authority is believed, and issues from now on
            mesh.authorities.append(Authority.create(tmp_path / "ca1", mesh.now, days=3650))
            mesh.believe()
        if day == 400:  # all have a certificate of it
            mesh.authorities.remove(first)
            mesh.believe()
        if day % 90 == 0:
            mesh.rotate()
        if day in (300, 400) or day % 90 == 0:
            for name in NAMES:
                mesh.hangup(name)
                mesh.check()
        mesh.run(DAY - mesh.now_ns % DAY)
        mesh.check()
        for who, identity in (("z", stolen), ("lab", reader)):
            if who not in cut and mesh.credentials["a"].lapsed(identity):
                cut[who] = day
    assert cut == {"z": LASTS, "lab": 101}, "what expired was cut on its day"
    late = tokens.issue(mesh.keys[0], "lab", "client", 60, mesh.wall_ns(""))
    with pytest.raises(RefusedError, match="signed by key"):
        mesh.credentials["a"].identify("client", "lab", None, late)
    serials = {name: identity_of(load_certificate(tmp_path / f"{name}.pem")).serial for name in NAMES}
    for name, verifier in mesh.verifiers.items():
        for key, entry in mesh.nodes[name].database.entries.items():
            signed = verifier._read(entry.statement.signature)
            assert signed is not None
            assert identity_of(signed.certificate).serial == serials[key[3]]


def test_who_is_not_renewed_is_out_of_every_map_when_its_certificate_expires(tmp_path: Path) -> None:
    mesh = Mesh(tmp_path)
    for day in range(1, LASTS + 5):
        for name in "abc":
            if day % RENEWED == 0:
                mesh.issue(name)
                mesh.hangup(name)
        mesh.run(DAY - mesh.now_ns % DAY)
        out = [name for name in "abc" if "d" not in mesh.nodes[name].members()]
        if day < LASTS - 1:
            assert not out, day
    lasts = SETTINGS.lifetime_ns // DAY
    assert out == ["a", "b", "c"], f"within the lifetime of a statement, {lasts} days here"
