"""What a person sees: a progress bar, one line per event, a summary table."""

from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, NamedTuple, Self

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table

_PHASE_GROUPS = {
    "gen": ("propose", "solve"),
    "verify": ("validate", "judge"),
    "learn": ("learn",),
    "publish": ("publish",),
    "evolve": ("evolve",),
}


class _Column(NamedTuple):
    title: str
    name: str
    """Of the metric; a column without any value is not shown."""
    form: str


_COLUMNS = (
    _Column("valid", "teacher/valid", ".0%"),
    _Column("solve rate", "problems/solve_rate", ".2f"),
    _Column("correct", "student/correct", ".0%"),
    _Column("reward T", "teacher/reward", "+.2f"),
    _Column("reward S", "student/reward", "+.2f"),
)


class Screen:
    """A progress bar at the bottom, lines above it. On a pipe only the lines appear."""

    def __init__(self) -> None:
        self._console = Console(highlight=False, soft_wrap=True)
        columns = (
            TextColumn("{task.description}"),
            BarColumn(),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            TextColumn("left"),
            TimeRemainingColumn(),
        )
        self._progress = Progress(*columns, console=self._console, disable=not self._console.is_terminal)
        self._task = self._progress.add_task("starting", total=None)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._progress.stop()

    def notice(self, text: str) -> None:
        """Show one line. The text may hold a model's words, so markup and control characters are disarmed."""
        self._console.print(escape_controls(text), markup=False)

    def phase(self, what: str, done: int, total: int) -> None:
        """Move the bar and say what goes on; silent on a pipe."""
        self._progress.update(self._task, description=what, completed=done, total=total)

    def step_phase(self, done: int, total: int, name: str) -> None:
        """Say which phase of which step goes on."""
        self.phase(f"step {done + 1}: {name}", done, total)

    def progress(self, what: str, done: int, total: int) -> None:
        """Move the bar; on a pipe, print every quarter of the way."""
        self.phase(what, done, total)
        if not self._console.is_terminal and (done == total or done % max(1, total // 4) == 0):
            self.notice(f"{what}: {done}/{total}")


def escape_controls(text: str) -> str:
    """Replace control characters, newlines and bidi overrides by visible escapes."""
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in text)


def describe_step(metrics: Mapping[str, Any]) -> str:
    """Return the one line that a step prints; what there is none of is a dash."""

    def show(name: str, form: str) -> str:
        return format(float(metrics[name]), form) if name in metrics else "-"

    about_teachers = (
        f" | valid {show('teacher/valid', '.0%')} | solve rate {show('problems/solve_rate', '.2f')}"
        f" | reward T {show('teacher/reward', '+.2f')}"
        if "teacher/samples" in metrics
        else ""
    )
    return (
        f"step {metrics['step']}{about_teachers} | correct {show('student/correct', '.0%')}"
        f" | reward S {show('student/reward', '+.2f')} | no signal {show('student/frac_reward_zero_std', '.0%')}"
        f" | truncated {show('student/completions/clipped_ratio', '.0%')} | {show('time/step_s', '.1f')} s"
        f" (sampled {show('perf/gen_tok_s', '.0f')}, learned {show('perf/train_tok_s', '.0f')} tokens/s)"
    )


def print_summary(metrics: Sequence[Mapping[str, Any]], lineage: Sequence[Mapping[str, Any]]) -> None:
    """Print the table of all steps and the replacements."""
    columns = [column for column in _COLUMNS if any(column.name in row for row in metrics)]
    table = Table(title="steps")
    for name in ("step", *(column.title for column in columns), *_PHASE_GROUPS, "total s"):
        table.add_column(name, justify="right")
    table.add_column("ratings (mu)")
    for row in metrics:
        shown = [format(row[column.name], column.form) if column.name in row else "-" for column in columns]
        seconds = [
            f"{sum(row.get(f'time/{phase}_s', 0.0) for phase in phases):.0f}" for phases in _PHASE_GROUPS.values()
        ]
        ratings = " ".join(f"{name.split('/')[1]} {value:.1f}" for name, value in row.items() if name.endswith("/mu"))
        table.add_row(str(row["step"]), *shown, *seconds, f"{row['time/step_s']:.0f}", ratings)
    console = Console(width=max(110, Console().width))
    console.print(table)
    for event in lineage:
        parents = ", ".join(event["parents"])
        console.print(
            f"step {event['step']}: {event['culled']} replaced by {event['child']} = {event['operator']}({parents})"
        )
