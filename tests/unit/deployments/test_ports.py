import socket
from pathlib import Path

from deployments.ports import own_port
from runner.home import Home


def test_a_home_keeps_its_port(tmp_path: Path) -> None:
    """Links into the UI that were sent yesterday open today."""
    home = Home(tmp_path)
    with own_port(home, locks=tmp_path) as first:
        pass
    with own_port(home, locks=tmp_path) as again:
        assert again == first


def test_two_control_sides_that_start_at_once_get_two_ports(tmp_path: Path) -> None:
    """Neither has bound its port yet when the other one chooses."""
    homes = [Home(tmp_path / name) for name in ("one", "two")]
    with own_port(homes[0], locks=tmp_path) as one, own_port(homes[1], locks=tmp_path) as two:
        assert one != two


def test_a_port_that_somebody_else_uses_is_passed_over(tmp_path: Path) -> None:
    """The user's own Prefect server may be there."""
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        (tmp_path / "port").write_text(str(taken))
        with own_port(Home(tmp_path), locks=tmp_path) as port:
            assert port != taken
