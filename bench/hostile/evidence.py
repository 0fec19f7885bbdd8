"""What a node shows of an attack: its metrics, its log, its audit log, its listings."""

from __future__ import annotations

import json
import urllib.request
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

IGNORED = ("chappe_port_connected", "chappe_port_silent_seconds")  # say that somebody is there, not what it did


@dataclass
class Evidence:
    """Everything a node showed since `mark`."""

    metrics_url: str
    log: Path
    audit: Path
    _log_from: int = 0
    _audit_from: int = 0
    _before: dict[str, float] = field(default_factory=dict)

    def mark(self) -> None:
        """What was shown so far does not count."""
        self._log_from, self._audit_from = _size(self.log), _size(self.audit)
        self._before = self.samples()

    def samples(self) -> dict[str, float]:
        """All samples of /metrics, as `name{labels}`."""
        with urllib.request.urlopen(self.metrics_url, timeout=20) as answer:
            text = answer.read().decode()
        found = {}
        for family in text_string_to_metric_families(text):
            for sample in family.samples:
                labels = ",".join(f'{name}="{value}"' for name, value in sorted(sample.labels.items()))
                found[f"{sample.name}{{{labels}}}"] = sample.value
        return found

    def grown(self, *words: str) -> dict[str, float]:
        """Samples with all these words in name or labels that are larger than at the mark."""
        return {
            name: value - self._before.get(name, 0.0)
            for name, value in self.samples().items()
            if value > self._before.get(name, 0.0)
            and all(word in name for word in words)
            and not name.startswith(IGNORED)
        }

    def logged(self, *words: str) -> list[str]:
        """Lines of the log since the mark with all these words."""
        return [line for line in _since(self.log, self._log_from) if all(word in line for word in words)]

    def audited(self, *words: str) -> list[dict[str, Any]]:
        """Entries of the audit log since the mark with all these words."""
        lines = [line for line in _since(self.audit, self._audit_from) if all(word in line for word in words)]
        return [json.loads(line) for line in lines]

    def lacks_counter(self, who: str, *words: str) -> list[str]:
        """A complaint if no counter that names them has grown."""
        return [] if self.grown(who, *words) else [f"no counter of {' '.join((who, *words))} has grown"]

    def lacks_log(self, who: str, *words: str) -> list[str]:
        """A complaint if no line of the log names them."""
        return [] if self.logged(who, *words) else [f"no line of the log has {' '.join((who, *words))}"]

    def lacks_audit(self, who: str, *words: str) -> list[str]:
        """A complaint if no entry of the audit log names them."""
        return [] if self.audited(who, *words) else [f"no entry of the audit log has {' '.join((who, *words))}"]


def _size(path: Path) -> int:
    return path.stat().st_size if path.exists() else 0


def _since(path: Path, start: int) -> list[str]:
    if not path.exists():
        return []
    with path.open("rb") as file:
        file.seek(start)
        return file.read().decode(errors="replace").splitlines()
