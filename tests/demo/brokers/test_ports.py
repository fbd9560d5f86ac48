"""Ports stay free for who reserved them."""

import socket

from demo.brokers.ports import HOST, PortReservation, is_free


def test_many_reservations_at_once_never_share_a_port() -> None:
    reservations = [PortReservation(5) for _ in range(10)]
    ports = [port for reservation in reservations for port in reservation]
    assert len(set(ports)) == 50
    for reservation in reservations:
        reservation.release()


def test_port_is_listened_on_is_not_free() -> None:
    with socket.create_server((HOST, 0)) as server:
        assert not is_free(server.getsockname()[1])


def test_connection_was_closed_by_the_server_port_is_free_again() -> None:
    # The server's side stays in TIME_WAIT, which must not block a restart.
    with socket.create_server((HOST, 0)) as server:
        address = server.getsockname()
        with socket.create_connection(address):
            server.accept()[0].close()
    assert is_free(address[1])
