"""Progress lines: all on a terminal, at most one each 30 s elsewhere."""

from __future__ import annotations

from workloads.progress import Progress


class Clock:
    def __init__(self) -> None:
        self.s = 0.0

    def __call__(self) -> float:
        return self.s


def test_off_a_terminal_one_line_each_30_s() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress(lines.append, terminal=False, now=clock)
    for second in range(0, 100, 5):
        clock.s = float(second)
        progress.phase("block 1", done=second, of=100)
    assert len(lines) == 4
    progress.line("look")
    assert lines[-1] == "  [1:35] look"


def test_a_terminal_gets_every_phase_with_elapsed_and_remaining() -> None:
    clock, lines = Clock(), list[str]()
    progress = Progress(lines.append, terminal=True, now=clock)
    for done in range(3):
        clock.s = 60.0 * done
        progress.phase("block", done=done, of=5)
    assert lines[-1] == "  [2:00] block (40%, about 3:00 to the next look)"
