"""`make alerts-check`: Prometheus' promtool judges the alert rules: each fires for its fault, and no other one does."""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

_MONITORING = Path(__file__).resolve().parents[2] / "monitoring"
_RULES = _MONITORING / "alerts.yaml"
_MINUTES = 90
_PREFIX = "KafkaMigration"

_LINK = 'migration="shop",direction="forward"'
_BACK = 'migration="shop",direction="reverse"'

Series = Mapping[str, str | None]

#: A migration in flight that nothing is wrong with, minute by minute.
_HEALTHY: Series = {
    'up{migration="shop"}': "0x1 1x89",
    'read_timestamp_seconds{migration="shop"}': "0+60x90",
    'topics{migration="shop"}': "5x90",
    'topics_by_state{migration="shop",state="mirroring"}': "5x90",
    # A topic is altered a moment before the journal has it.
    'topics_drifted{migration="shop",endangers_records="yes"}': "0x30 1 0x60",
    'topics_drifted{migration="shop",endangers_records="no"}': "2x90",
    f'mirror_state{{{_LINK},state="running"}}': "1x90",
    f'mirror_desired{{{_LINK},desired="run"}}': "1x90",
    f"mirror_paused{{{_LINK}}}": "0x90",
    f"mirror_records{{{_LINK}}}": "0+1000x90",
    f'lag_offsets{{{_LINK},topic="orders"}}': "50000-500x90",
    f'validation_verdict{{{_LINK},verdict="EQUAL"}}': "1x90",
    f"validation_timestamp_seconds{{{_LINK}}}": "60x90",
    'groups_astray{migration="shop"}': "0x90",
    'straggler_records{migration="shop"}': "0x90",
    'fence_standing{migration="shop",fence="early-writes"}': "1x90",
    'fence_standing{migration="shop",fence="group-reads"}': "1x90",
    'phase_outcome{migration="shop",phase="create_targets",outcome="done"}': "1x90",
    'phase_started_timestamp_seconds{migration="shop",phase="create_targets"}': "0x90",
    'phase_outcome{migration="shop",phase="mirror",outcome="running"}': "1x90",
    'phase_started_timestamp_seconds{migration="shop",phase="mirror"}': "0x90",
    'over{migration="shop"}': "0x90",
}
_RUNNING, _WISHED = f'mirror_state{{{_LINK},state="running"}}', f'mirror_desired{{{_LINK},desired="run"}}'
_LAG, _RECORDS = f'lag_offsets{{{_LINK},topic="orders"}}', f"mirror_records{{{_LINK}}}"
_EQUAL = f'validation_verdict{{{_LINK},verdict="EQUAL"}}'
_MIRRORING = 'topics_by_state{migration="shop",state="mirroring"}'
_SERVED: Series = {_MIRRORING: None, 'topics_by_state{migration="shop",state="served by the target"}': "5x90"}
_SEALED: Series = {_RUNNING: None, f'mirror_state{{{_LINK},state="sealed"}}': "1x90", _LAG: None, _RECORDS: "9x90"}
_ENDED: Series = {_RUNNING: None, f'mirror_state{{{_LINK},state="ended"}}': "1x90", _RECORDS: "9x90"}
_CLEAR: Series = {_WISHED: None, f'mirror_desired{{{_LINK},desired="stop"}}': "1x90"}
_FENCED: Series = {'fence_standing{migration="shop",fence="writes"}': "1x90"}


def _failed(phase: str, outcome: str = "failed", started: str = "0x90") -> Series:
    return {
        f'phase_outcome{{migration="shop",phase="{phase}",outcome="{outcome}"}}': "1x90",
        f'phase_started_timestamp_seconds{{migration="shop",phase="{phase}"}}': started,
    }


#: What is other than in a migration in flight (None: the series is not there), at times that are healthy, too.
_QUIET: tuple[Series, ...] = (
    {},
    # Nothing was made yet, so nothing is to be known; or the mirror has not started, or did what it was asked to.
    {'unknown{migration="shop",part="lag"}': "1x90", 'topics{migration="shop"}': "0x90"},
    {_RUNNING: None, f'mirror_state{{{_LINK},state="not started"}}': "1x90", _LAG: "100000+900x90", _RECORDS: "0x90"},
    {**_ENDED, f'mirror_ended{{{_LINK},reason="caught_up"}}': "1x90", _LAG: "0+900x90"},
    {**_CLEAR, _RUNNING: None, f'mirror_state{{{_LINK},state="silent"}}': "1x90", _RECORDS: "9x90"},
    # A mirror that waits for a broker sends no heartbeat for a while; one that was started anew.
    {_RUNNING: "1x20 stale _x3 1x60", f'mirror_state{{{_LINK},state="silent"}}': "_x20 1x3 stale"},
    {'phase_started_timestamp_seconds{migration="shop",phase="mirror"}': "0x30 1800x30 3600x30"},
    # What keeps up, and topics in which nothing happens.
    {_LAG: "100+10x90"},
    {_LAG: "0x90", _RECORDS: "9x90"},
    # Paused for half an hour.
    {f"mirror_paused{{{_LINK}}}": "0x10 1x30 0x50", _LAG: "50000+900x40 86000-1500x50"},
    # Sealed; producers moved, their fence stays, and the reverse mirror writes to the source.
    _SEALED,
    {**_SEALED, **_SERVED, **_FENCED, 'switch_unfinished{migration="shop",to="target"}': "1x1 0x89"},
    {**_SEALED, **_SERVED, **_FENCED, f'mirror_state{{{_BACK},state="running"}}': "1x90"},
    {**_SEALED, _MIRRORING: None, 'topics_by_state{migration="shop",state="sealed"}': "5x90", **_FENCED},
    # Copied again, and validated since; a failure of yesterday.
    {f"mirror_rewound_timestamp_seconds{{{_LINK}}}": "30x90"},
    _failed("validate", started="-86400x90"),
    # Once it is over, the source may be switched off.
    {
        **_ENDED,
        **_FENCED,
        **_failed("validate"),
        'over{migration="shop"}': "1x90",
        'unknown{migration="shop",part="lag"}': "1x90",
        'topics_by_state{migration="shop",state="completed"}': "5x90",
        _MIRRORING: None,
    },
)

#: What is other, and the alert that fires for it.
_FAULTS: tuple[tuple[Series, str], ...] = (
    (dict.fromkeys(_HEALTHY), "MetricsMissing"),
    ({'up{migration="shop"}': "1x5 0x85"}, "Unread"),
    ({'read_timestamp_seconds{migration="shop"}': "0+60x9 600x80"}, "Unread"),
    ({'unknown{migration="shop",part="lag"}': "1x90"}, "PartUnknown"),
    ({_RUNNING: None, f'mirror_state{{{_LINK},state="silent"}}': "1x90", _RECORDS: "9x90"}, "MirrorSilent"),
    # Readings that failed for some minutes take no alert back.
    ({_RUNNING: None, f'mirror_state{{{_LINK},state="silent"}}': "1x80 stale _x8", _RECORDS: "9x90"}, "MirrorSilent"),
    ({**_ENDED, f'mirror_ended{{{_LINK},reason="failed"}}': "1x90"}, "MirrorFailed"),
    ({'phase_started_timestamp_seconds{migration="shop",phase="mirror"}': "0+60x90"}, "MirrorKeepsDying"),
    ({f"mirror_paused{{{_LINK}}}": "1x90", _RECORDS: "9x90"}, "MirrorPaused"),
    ({_LAG: "7x90", _RECORDS: "9x90"}, "MirrorStandsStill"),
    ({**_SEALED, **_SERVED, f'mirror_state{{{_BACK},state="not started"}}': "1x90"}, "WayBackNotMirrored"),
    ({f'halted_partitions{{{_LINK},reason="CORRUPT"}}': "3x90"}, "PartitionsHalted"),
    ({_LAG: "20000+500x90"}, "LagGrows"),
    ({'topics_drifted{migration="shop",endangers_records="yes"}': "1x90"}, "TopicsChanged"),
    ({f"mirror_rewound_timestamp_seconds{{{_LINK}}}": "3600x90"}, "DestinationLostRecords"),
    (
        {
            f"mirror_rewound_timestamp_seconds{{{_LINK}}}": "3600x90",
            f"validation_timestamp_seconds{{{_LINK}}}": None,
            _EQUAL: None,
        },
        "DestinationLostRecords",
    ),
    ({_EQUAL: None, f'validation_verdict{{{_LINK},verdict="DIFFERENT"}}': "1x90"}, "Different"),
    ({f'validation_verdict{{{_BACK},verdict="DIFFERENT"}}': "1x90"}, "Different"),
    ({_EQUAL: None, f'validation_verdict{{{_LINK},verdict="INCONCLUSIVE"}}': "1x90"}, "NotProvedEqual"),
    ({'groups_astray{migration="shop"}': "1x90"}, "GroupsAstray"),
    ({'straggler_records{migration="shop"}': "7x90"}, "Stragglers"),
    ({**_SEALED, **_SERVED, 'switch_unfinished{migration="shop",to="target"}': "1x90"}, "SwitchUnfinished"),
    (
        {**_FENCED, _MIRRORING: None, 'topics_by_state{migration="shop",state="fenced"}': "5x90"},
        "FenceStands",
    ),
    (_failed("validate"), "PhaseFailed"),
    (_failed("cut_over", "running", "-7200x90"), "PhaseBrokenOff"),
    # Another migration of the same name, elsewhere, that is over, silences nothing.
    (
        {
            f'halted_partitions{{{_LINK},reason="CORRUPT"}}': "3x90",
            'over{migration="shop",instance="elsewhere"}': "1x90",
        },
        "PartitionsHalted",
    ),
)


def main() -> int:
    """0 if promtool finds that every rule fires for its fault alone."""
    promtool = shutil.which("promtool")
    if promtool is None:
        print("error: no promtool on PATH. On Debian and Ubuntu: apt install prometheus", file=sys.stderr)
        return 2
    rules = [rule["alert"] for group in yaml.safe_load(_RULES.read_text())["groups"] for rule in group["rules"]]
    never = set(rules) - {_PREFIX + alert for _, alert in _FAULTS}
    if never:
        print(f"error: no fault here is for {', '.join(sorted(never))}", file=sys.stderr)
        return 1
    tests = [_test(changed, rules, "", range(4, _MINUTES, 5)) for changed in _QUIET]
    tests += [_test(changed, rules, _PREFIX + alert, [_MINUTES - 1]) for changed, alert in _FAULTS]
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "tests.yaml"
        file.write_text(yaml.safe_dump({"rule_files": [str(_RULES)], "evaluation_interval": "1m", "tests": tests}))
        # With the rules that the configuration names.
        for arguments in (["check", "config", str(_MONITORING / "prometheus.yaml")], ["test", "rules", str(file)]):
            done = subprocess.run([promtool, *arguments], check=False)
            if done.returncode:
                return 1
    print(f"{len(rules)} rules, {len(tests)} migrations: each alert fires for its fault alone")
    return 0


def _test(changed: Series, rules: list[str], alert: str, minutes: Iterable[int]) -> dict[str, Any]:
    """A migration that differs from the healthy one by what is ``changed``; of the ``rules``, ``alert`` alone fires at
    these ``minutes``."""
    series = {**_HEALTHY, **changed}
    return {
        "name": alert or "quiet",
        "interval": "1m",
        "input_series": [
            {"series": f"kafka_migration_{name}", "values": values} for name, values in series.items() if values
        ],
        # As ALERTS, not with labels and texts: those are in the rules alone.
        "promql_expr_test": [
            {
                "expr": f'count by (alertname) (ALERTS{{alertname="{rule}",alertstate="firing"}})',
                "eval_time": f"{minute}m",
                "exp_samples": [{"labels": f'{{alertname="{rule}"}}', "value": 1}] if rule == alert else [],
            }
            for rule in rules
            for minute in minutes
        ],
    }


if __name__ == "__main__":
    sys.exit(main())
