"""The process of an attacker: reads its job as a line of JSON, then strikes once for each line `{"effort": …}`.

It runs at idle priority: it takes what honest clients on the same core leave.
"""

from __future__ import annotations

import json
import os
import sys
from dataclasses import asdict

import msgspec

from bench.hostile import ATTACKS
from bench.hostile.attack import Effort, Target
from chappe.errors import ChappeError


class Job(msgspec.Struct):
    """Which attack, on whom."""

    attack: str
    target: Target


def main() -> int:
    os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    os.nice(19)
    job = msgspec.json.decode(sys.stdin.readline(), type=Job)
    attack = next(kind for kind in ATTACKS if kind.name == job.attack)(job.target)
    try:
        attack.prepare()
        _say({"ready": True})
        for line in sys.stdin:
            effort = msgspec.json.decode(line, type=Effort)
            _say(asdict(attack.strike(effort)))
    except (ChappeError, OSError, ValueError) as error:
        _say({"error": f"{job.attack}: {type(error).__name__}: {error}"})
        return 1
    finally:
        attack.release()
    return 0


def _say(message: dict[str, object]) -> None:
    print(json.dumps(message), flush=True)


if __name__ == "__main__":
    sys.exit(main())
