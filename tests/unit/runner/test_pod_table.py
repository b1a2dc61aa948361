from dataclasses import replace

from runner.pod_table import PodRow, markdown_table, plain_table

ROW = PodRow("12345678-90ab", "p1", "vast", "training", 0.5, 1.25, gpu_percent=97.4, uptime=3720)


def test_what_a_cloud_does_not_tell_is_a_question_mark() -> None:
    """Never zero, which would look idle."""
    line = markdown_table([ROW], {}).splitlines()[2]
    assert (
        line
        == "| 12345678 | p1 | vast | training |  |  | ? | ? | 97 % | ? | 1:02 | 0.50 | 1.2500 |  |"
    )


def test_a_cloud_that_can_not_be_listed_is_shown() -> None:
    """An empty table would say that all is gone."""
    table = markdown_table([], {"runpod": "503"})
    assert "no pods" in table
    assert "runpod: its pods can't be listed now" in table


def test_the_plain_table_has_columns() -> None:
    """For terminals, and for the code block of a notice."""
    head, row = plain_table([ROW]).splitlines()
    assert head.index("phase") == row.index("training")


def test_a_training_shows_its_step_and_the_time_left() -> None:
    """What is unknown of them is a question mark; a pod that trains nothing shows neither."""
    training = replace(ROW, step=120, planned_steps=400, seconds_left=5400.0)
    assert "| training | 120/400 | 1:30 |" in markdown_table([training], {})
    begun = replace(ROW, step=1)
    assert "| training | 1/? | ? |" in markdown_table([begun], {})
