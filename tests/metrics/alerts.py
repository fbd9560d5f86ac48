"""`make alerts-check`: Prometheus' promtool judges the alert rules: each fires for its fault, and no other one does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import yaml

_RULES = Path(__file__).resolve().parents[2] / "monitoring" / "alerts.yaml"
_MINUTES = 90

_LINK = 'migration="shop",direction="forward"'
#: A migration in flight that nothing is wrong with, minute by minute.
_HEALTHY: Mapping[str, str] = {
    'up{migration="shop"}': "1x90",
    'read_timestamp_seconds{migration="shop"}': "0+60x90",
    'topics{migration="shop"}': "5x90",
    'topics_by_state{migration="shop",state="mirroring"}': "5x90",
    'topics_drifted{migration="shop",endangers_records="yes"}': "0x90",
    'topics_drifted{migration="shop",endangers_records="no"}': "2x90",
    f'mirror_state{{{_LINK},state="running"}}': "1x90",
    f'mirror_desired{{{_LINK},desired="run"}}': "1x90",
    f"mirror_paused{{{_LINK}}}": "0x90",
    f"mirror_rewound{{{_LINK}}}": "0x90",
    f'lag_offsets{{{_LINK},topic="orders"}}': "50000-500x90",
    'validation_verdict{migration="shop",verdict="EQUAL"}': "1x90",
    'groups_astray{migration="shop"}': "0x90",
    'straggler_records{migration="shop"}': "0x90",
    'fence_standing{migration="shop",fence="early-writes"}': "1x90",
    'fence_standing{migration="shop",fence="group-reads"}': "1x90",
    'phase_outcome{migration="shop",phase="create_targets",outcome="done"}': "1x90",
    'phase_outcome{migration="shop",phase="mirror",outcome="running"}': "1x90",
    'over{migration="shop"}': "0x90",
}
_RUNNING = f'mirror_state{{{_LINK},state="running"}}'

#: What is other than in a healthy migration (None: the series is not there), and the alert that fires for it.
_FAULTS: tuple[tuple[Mapping[str, str | None], str], ...] = (
    ({}, ""),
    ({'up{migration="shop"}': "1x5 0x85"}, "KafkaMigrationUnread"),
    ({'read_timestamp_seconds{migration="shop"}': "0+60x9 600x80"}, "KafkaMigrationUnread"),
    ({'unknown{migration="shop",part="lag"}': "1x90"}, "KafkaMigrationPartUnknown"),
    # Before anything was made, there is nothing to be known.
    ({'unknown{migration="shop",part="lag"}': "1x90", 'topics{migration="shop"}': "0x90"}, ""),
    ({_RUNNING: None, f'mirror_state{{{_LINK},state="silent"}}': "1x90"}, "KafkaMigrationMirrorSilent"),
    ({_RUNNING: None, f'mirror_state{{{_LINK},state="ended"}}': "1x90"}, "KafkaMigrationMirrorEnded"),
    (
        {
            _RUNNING: None,
            f'mirror_state{{{_LINK},state="ended"}}': "1x90",
            f'mirror_desired{{{_LINK},desired="run"}}': None,
            f'mirror_desired{{{_LINK},desired="stop"}}': "1x90",
        },
        "",
    ),
    ({f'halted_partitions{{{_LINK},reason="CORRUPT"}}': "3x90"}, "KafkaMigrationPartitionsHalted"),
    ({f'lag_offsets{{{_LINK},topic="orders"}}': "20000+500x90"}, "KafkaMigrationLagGrows"),
    ({f'lag_offsets{{{_LINK},topic="orders"}}': "20000+500x90", f"mirror_paused{{{_LINK}}}": "1x90"}, ""),
    ({f'lag_offsets{{{_LINK},topic="orders"}}': "100+10x90"}, ""),
    ({'topics_drifted{migration="shop",endangers_records="yes"}': "1x90"}, "KafkaMigrationTopicsChanged"),
    ({f"mirror_rewound{{{_LINK}}}": "0x60 1x30"}, "KafkaMigrationTargetLostRecords"),
    (
        {
            'validation_verdict{migration="shop",verdict="EQUAL"}': None,
            'validation_verdict{migration="shop",verdict="DIFFERENT"}': "1x90",
        },
        "KafkaMigrationNotEqual",
    ),
    ({'groups_astray{migration="shop"}': "1x90"}, "KafkaMigrationGroupsAstray"),
    ({'straggler_records{migration="shop"}': "7x90"}, "KafkaMigrationStragglers"),
    ({'fence_standing{migration="shop",fence="writes"}': "1x90"}, "KafkaMigrationFenceStands"),
    ({'fence_standing{migration="shop",fence="back-writes"}': "1x90"}, "KafkaMigrationFenceStands"),
    # Behind a switch of producers it is there for good.
    (
        {
            'fence_standing{migration="shop",fence="writes"}': "1x90",
            'topics_by_state{migration="shop",state="mirroring"}': None,
            'topics_by_state{migration="shop",state="served by the target"}': "5x90",
        },
        "",
    ),
    (
        {'phase_outcome{migration="shop",phase="validate",outcome="failed"}': "1x90"},
        "KafkaMigrationPhaseFailed",
    ),
    # Once it is over, the source may be switched off.
    (
        {
            'over{migration="shop"}': "1x90",
            'unknown{migration="shop",part="lag"}': "1x90",
            _RUNNING: None,
            f'mirror_state{{{_LINK},state="ended"}}': "1x90",
            'phase_outcome{migration="shop",phase="validate",outcome="failed"}': "1x90",
        },
        "",
    ),
)


def main() -> int:
    """0 if promtool finds that every rule fires for its fault alone."""
    promtool = shutil.which("promtool")
    if promtool is None:
        print("error: no promtool on PATH. On Debian and Ubuntu: apt install prometheus", file=sys.stderr)
        return 2
    rules = [rule["alert"] for group in yaml.safe_load(_RULES.read_text())["groups"] for rule in group["rules"]]
    never = set(rules) - {alert for _, alert in _FAULTS}
    if never:
        print(f"error: no fault here is for {', '.join(sorted(never))}", file=sys.stderr)
        return 1
    tests = [_test(changed, rules, alert) for changed, alert in _FAULTS]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "evaluation_interval": "1m", "tests": tests}))
        for arguments in (["check", "rules", str(_RULES)], ["test", "rules", str(file)]):
            done = subprocess.run([promtool, *arguments], check=False)
            if done.returncode:
                return 1
    print(f"{len(rules)} rules, {len(tests)} migrations: each alert fires for its fault alone")
    return 0


def _test(changed: Mapping[str, str | None], rules: list[str], alert: str) -> dict[str, Any]:
    """A migration that differs from the healthy one by what is ``changed``; of the ``rules``, ``alert`` fires."""
    series = {**_HEALTHY, **changed}
    return {
        "name": alert or "silent",
        "interval": "1m",
        "input_series": [
            {"series": f"kafka_migration_{name}", "values": values} for name, values in series.items() if values
        ],
        # As ALERTS, not with labels and texts: those are in the rules alone.
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{rule}",alertstate="firing"}})',
                "eval_time": f"{_MINUTES - 1}m",
                "exp_samples": [{"labels": f'{{alertname="{rule}"}}', "value": 1}] if rule == alert else [],
            }
            for rule in rules
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
