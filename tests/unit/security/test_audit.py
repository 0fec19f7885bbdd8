"""The audit log: every line on disk, none glued, none lost in rotation, no secret in any."""

from __future__ import annotations

import errno
import json
import os
import resource
import signal
import stat
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from chappe.errors import ConfigError
from chappe.security import Audit, AuditLog, Identity

ADMIN = Identity(name="ada", role="admin", how="certificate", serial="1f")


def lines(path: Path) -> list[dict[str, object]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


@pytest.mark.spec("NS-072")
def test_a_line_says_who_did_what_when_and_how_it_ended(tmp_path: Path) -> None:
    log = AuditLog(Audit(path=str(tmp_path / "audit")), lambda: 1_800_000_000_123_000_000)
    log.record(ADMIN, "reload", "west", "done")
    log.record(None, "drain", "west", "failed", "busy", waited_s=5)
    log.close()
    first, second = lines(tmp_path / "audit")
    assert first == {
        "time": "2027-01-15T08:00:00.123+00:00", "time_ns": 1_800_000_000_123_000_000, "who": "ada", "role": "admin",
        "how": "certificate", "serial": "1f", "action": "reload", "target": "west", "outcome": "done",
    }  # fmt: skip
    assert (second["who"], second["how"], second["reason"]) == ("local", "local", "busy")
    assert second["details"] == {"waited_s": 5}
    assert stat.S_IMODE((tmp_path / "audit").stat().st_mode) == 0o600


def test_what_was_written_is_kept_when_opened_again_even_after_half_a_line(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    config = Audit(path=str(path))
    AuditLog(config).record(ADMIN, "one", "west", "done")
    with path.open("a") as file:
        file.write('{"half')
    log = AuditLog(config)
    log.record(ADMIN, "two", "west", "done")
    log.close()
    first, half, second = path.read_text().splitlines()
    assert (json.loads(first)["action"], half, json.loads(second)["action"]) == ("one", '{"half', "two")


def test_a_line_survives_the_death_of_the_process(tmp_path: Path) -> None:
    code = (
        "import os, signal, sys; from chappe.security import Audit, AuditLog\n"
        "AuditLog(Audit(path=sys.argv[1])).record(None, 'last words', 'west', 'done')\n"
        "os.kill(os.getpid(), signal.SIGKILL)"
    )
    path = os.pathsep.join(sys.path)
    done = subprocess.run(
        [sys.executable, "-c", code, tmp_path / "audit"],
        env={**os.environ, "PYTHONPATH": path},
        timeout=30,
        check=False,
    )
    assert done.returncode == -signal.SIGKILL
    assert lines(tmp_path / "audit")[0]["action"] == "last words"


def test_rotation_by_size_loses_nothing_it_should_keep(tmp_path: Path) -> None:
    log = AuditLog(Audit(path=str(tmp_path / "audit"), max_bytes=4096, keep=3))
    for number in range(100):
        log.record(ADMIN, "step", str(number), "done")
    log.close()
    files = [tmp_path / name for name in ("audit.3", "audit.2", "audit.1", "audit")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(path.stat().st_size <= 4096 for path in files)
    kept = [int(str(line["target"])) for path in files for line in lines(path)]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 60


def test_many_threads_write_whole_lines(tmp_path: Path) -> None:
    log = AuditLog(Audit(path=str(tmp_path / "audit"), max_bytes=4096, keep=100))
    threads = [
        threading.Thread(target=lambda place=place: [log.record(ADMIN, "x", f"{place}-{n}", "done") for n in range(20)])  # type: ignore[misc]
        for place in range(4)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    log.close()
    targets = {line["target"] for path in tmp_path.iterdir() for line in lines(path)}
    assert targets == {f"{place}-{n}" for place in range(4) for n in range(20)}


def test_no_secret_is_written(tmp_path: Path) -> None:
    log = AuditLog(Audit(path=str(tmp_path / "audit")))
    log.record(
        ADMIN,
        "x",
        "y",
        "failed",
        "token=abc123 refused",
        token="s3cret",
        nested={"private_key": "s3cret"},
        key=b"s3cret",
    )
    log.close()
    text = (tmp_path / "audit").read_text()
    assert "s3cret" not in text
    assert "abc123" not in text


def test_a_full_disk_is_an_error_and_the_next_line_is_whole_again(tmp_path: Path) -> None:
    path = tmp_path / "audit"
    log = AuditLog(Audit(path=str(path)))
    log.record(ADMIN, "one", "west", "done")
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    # A limit on the size of files stands for a full disk: the line is cut, then refused.
    old = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (path.stat().st_size + 20, before[1]))
    try:
        with pytest.raises(OSError, match="File too large"):
            log.record(ADMIN, "two", "west", "done")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)
        signal.signal(signal.SIGXFSZ, old)
    log.record(ADMIN, "three", "west", "done")
    log.close()
    first, cut, last = path.read_text().splitlines()
    assert (json.loads(first)["action"], len(cut), json.loads(last)["action"]) == ("one", 20, "three")


def test_a_place_that_cannot_be_written_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="gone/audit: the audit log cannot be opened: No such file"):
        AuditLog(Audit(path=str(tmp_path / "gone" / "audit")))
    log = AuditLog(Audit(path=str(tmp_path / "audit")))
    log.close()
    with pytest.raises(ConfigError, match="closed"):
        log.record(ADMIN, "x", "y", "done")


def test_a_rotation_that_fails_is_tried_again_and_loses_no_line(tmp_path: Path) -> None:
    """A process without a free descriptor cannot open the next file; when it has one the log goes on."""
    log = AuditLog(Audit(path=str(tmp_path / "audit"), max_bytes=4096, keep=5))
    log.record(ADMIN, "step", "0", "done", "x" * 3000)
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (0, hard))
    try:
        for _ in range(2):
            with pytest.raises(OSError, match="Too many open files"):
                log.record(ADMIN, "step", "1", "done", "x" * 3000)
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
    log.record(ADMIN, "step", "2", "done")
    log.close()
    assert [line["target"] for name in ("audit.1", "audit") for line in lines(tmp_path / name)] == ["0", "2"]


def test_a_file_that_failed_to_sync_is_not_written_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = AuditLog(Audit(path=str(tmp_path / "audit")))
    log.record(ADMIN, "step", "0", "done")
    monkeypatch.setattr(os, "fsync", _fails)
    with pytest.raises(OSError, match="Input/output error"):
        log.record(ADMIN, "step", "1", "done")
    monkeypatch.undo()
    log.record(ADMIN, "step", "2", "done")
    log.close()
    assert [line["target"] for line in lines(tmp_path / "audit.1")] == ["0", "1"]
    assert [line["target"] for line in lines(tmp_path / "audit")] == ["2"]


def test_after_a_folder_failed_to_sync_nothing_is_confirmed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The names in it are not sure any more: a new file could take the place of one that holds lines."""
    log = AuditLog(Audit(path=str(tmp_path / "audit"), max_bytes=4096, keep=5))
    log.record(ADMIN, "step", "0", "done", "x" * 3000)
    monkeypatch.setattr(os, "fsync", _fails)
    with pytest.raises(OSError, match="Input/output error"):
        log.record(ADMIN, "step", "1", "done", "x" * 3000)
    monkeypatch.undo()
    with pytest.raises(OSError, match=r"failed to sync .*start the node again"):
        log.record(ADMIN, "step", "2", "done")
    assert not (tmp_path / "audit").exists()
    again = AuditLog(Audit(path=str(tmp_path / "audit")))
    again.record(ADMIN, "step", "3", "done")
    assert [line["target"] for name in ("audit.1", "audit") for line in lines(tmp_path / name)] == ["0", "3"]


def _fails(descriptor: int) -> None:
    raise OSError(errno.EIO, "Input/output error")
