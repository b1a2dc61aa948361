"""The line that a watcher sees."""

from __future__ import annotations

import os

import pytest

from deployments.watching import PLAIN_EVERY, Line


def test_plain_lines_are_throttled_but_a_new_phase_is_shown_at_once(
    capsys: pytest.CaptureFixture[str],
) -> None:
    """A log file of a CI job does not grow by a line a second."""
    now = [0.0]
    line = Line(clock=lambda: now[0])
    line.show("starting the trainer · $0.00")
    for step in range(1, 31):
        now[0] += 1.0
        line.show(f"attempt 1 · step {step}/40 · loss 2.0 · $0.00")
    line.show("attempt 1 · saving · step 30/40 · $0.00")
    shown = capsys.readouterr().out.splitlines()
    steps = [text.split(" ")[4] for text in shown if " · step" in text and "saving" not in text]
    assert steps == ["1/40", f"{1 + int(PLAIN_EVERY)}/40", f"{1 + 2 * int(PLAIN_EVERY)}/40"]
    assert shown[0].startswith("starting the trainer")
    assert "saving" in shown[-1]


def test_on_a_terminal_one_line_is_written_over(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Cut to the terminal's width: a line that wraps can't be written over."""
    monkeypatch.setattr("sys.stdout.isatty", lambda: True)
    monkeypatch.setattr("shutil.get_terminal_size", lambda: os.terminal_size((20, 5)))
    line = Line()
    line.show("attempt 1 · step 1/40 · loss 2.0")
    line.show("attempt 1 · step 2/40 · loss 2.0")
    line.end()
    said = capsys.readouterr().out
    assert said == "\r\x1b[Kattempt 1 · step 1…\r\x1b[Kattempt 1 · step 2…\n"
