from runner.attempts import AttemptFacts, CheckpointFact, from_message, to_message
from runner.postmortem import PostMortem, SuspectRow


def _facts(**known: object) -> AttemptFacts:
    return AttemptFacts(
        n=1,
        outcome="loss_spike",
        reason="the loss jumped from 2.1 to 9.8",
        tail=("last line of the log",),
        checkpoints=(CheckpointFact(5, "healthy"),),
        curve=((1, 2.5), (2, "nan"), (3, None)),
        **known,
    )


def test_the_facts_survive_the_way_through_a_state_message() -> None:
    """What the pod says is what the parent reads, non-finite losses included."""
    facts = _facts(
        note="a note",
        rung={"kind": "replay"},
        quarantined=("checkpoint-25.attempt-1",),
        postmortem=PostMortem(1, 22, 24, (SuspectRow(23, 7, 11.5, "zzz", 12),), lr=0.004),
    )
    assert from_message(to_message(facts)) == facts


def test_people_read_the_reason_first_and_then_the_log() -> None:
    """The UI shows the message as it is."""
    lines = to_message(_facts()).splitlines()
    assert lines[0] == "the loss jumped from 2.1 to 9.8"
    assert "last line of the log" in lines


def test_a_message_of_somebody_else_carries_no_facts() -> None:
    """A child that died has Prefect's own message."""
    assert from_message("Flow run process exited with non-zero status code -9.") is None
    assert from_message(None) is None


def test_progress_is_to_get_past_the_checkpoint() -> None:
    """An attempt that dies where it began has not progressed."""
    assert _facts(from_checkpoint=20, last_step=21).progressed
    assert not _facts(from_checkpoint=20, last_step=20).progressed
    assert not _facts(from_checkpoint=20, last_step=None).progressed
