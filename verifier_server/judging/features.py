"""Reads the JSON of the analysis run. It came out of a jail, so every number is checked."""

import json
import math
import re
from dataclasses import dataclass
from typing import Any

from verifier_server.domain import Reason, TaskFeatures

_MAX_COUNT = 1 << 24
_HASH = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True, slots=True)
class Analysis:
    """What the analysis says: features, or the reason why there are none."""

    reason: Reason | None
    detail: str = ""
    features: TaskFeatures | None = None
    findings: tuple[tuple[str, str], ...] = ()


def read_analysis(data: bytes) -> Analysis:
    """Return the analysis; anything unexpected is ANALYSIS_FAILED."""
    try:
        raw = json.loads(data)
        if "error" in raw:
            reason = Reason.SYNTAX_ERROR if raw["error"] == "syntax" else Reason.TOO_DEEP
            return Analysis(reason, _text(raw["detail"], 500))
        features = _read_features(raw)
        findings = tuple((_text(code, 40), _text(detail, 200)) for code, detail in raw["findings"][:64])
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        return Analysis(Reason.ANALYSIS_FAILED, f"unreadable analysis: {type(error).__name__}")
    return Analysis(None, "", features, findings)


def _read_features(raw: dict[str, Any]) -> TaskFeatures:
    if not _HASH.fullmatch(raw["ast_hash"]):
        raise ValueError("ast_hash")
    return TaskFeatures(
        ast_hash=raw["ast_hash"],
        node_types=tuple(_text(name, 40) for name in raw["node_types"][:512]),
        depth=_count(raw["depth"]),
        nodes=_count(raw["nodes"]),
        cyclomatic_complexity=_count(raw["cyclomatic_complexity"]),
        lines=_count(raw["lines"]),
        variables=_count(raw["variables"]),
        halstead_volume=_measure(raw["halstead_volume"]),
        halstead_difficulty=_measure(raw["halstead_difficulty"]),
        imports=tuple(_text(name, 100) for name in raw["imports"][:64]),
    )


def _count(value: object) -> int:
    if type(value) is not int or not 0 <= value <= _MAX_COUNT:
        raise ValueError("count out of range")
    return value


def _measure(value: object) -> float:
    if not isinstance(value, int | float) or not math.isfinite(value) or not 0 <= value < 1e12:
        raise ValueError("measure out of range")
    return float(value)


def _text(value: object, limit: int) -> str:
    if not isinstance(value, str):
        raise ValueError("not text")
    return value[:limit].encode("utf-8", "backslashreplace").decode()
