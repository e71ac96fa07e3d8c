"""Messages through a socket: what arrives is what was sent, large arrays without a copy in the pickle."""

from __future__ import annotations

import os
import socket
from selectors import EVENT_READ, EVENT_WRITE
from threading import Thread
from typing import Any

import numpy as np
import pytest

from raysim.cluster.parcels import LARGE, Parcel, at_once, receiving


def exchanged(*values: Any) -> list[Any]:
    """The values after they have gone through one socket, which ends behind them."""
    ours, theirs = socket.socketpair()

    def send() -> None:
        with theirs:
            for value in values:
                at_once(Parcel.of(value).sending(theirs.fileno()))

    with ours:
        sender = Thread(target=send)
        sender.start()
        received = [at_once(receiving(ours.fileno())) for _ in values]
        sender.join()
        assert ours.recv(1) == b""  # everything has been read
    return received


@pytest.mark.parametrize("size", [0, 1, LARGE // 8 - 1, LARGE // 8, 10 * LARGE])
def test_arrays_of_any_size_arrive_one_after_the_other(size: int):
    rng = np.random.default_rng(size)
    whole = rng.integers(-(2**63), 2**63 - 1, 2 * size)
    values = {"units": whole[:size], "every other": whole[::2], "columns": np.asfortranarray(whole.reshape(2, size))}
    first, second = exchanged(values, [values, "text", values["units"]])
    for received in (first, second[0]):
        for name, array in values.items():
            np.testing.assert_array_equal(received[name], array)
            assert received[name].dtype == array.dtype
    assert second[1] == "text"
    assert second[2] is second[0]["units"]
    first["units"] += 1  # who receives an array may write to it


def test_large_arrays_are_not_in_the_pickle_and_small_ones_are():
    large, small = np.zeros(LARGE // 8), np.zeros(LARGE // 8 - 1)
    parcel = Parcel.of([large, small])
    assert [array.nbytes for array in parcel.arrays] == [LARGE]
    assert small.nbytes < len(parcel.text) < small.nbytes + 1000
    assert parcel.nbytes == LARGE + len(parcel.text)
    assert np.shares_memory(np.frombuffer(parcel.arrays[0]), large)


def test_an_array_that_is_written_in_pieces_arrives_whole(monkeypatch: pytest.MonkeyPatch):
    """A signal may end a write early."""
    write, array = os.write, np.arange(LARGE)
    monkeypatch.setattr(os, "write", lambda file, data: write(file, data[: LARGE - 1]))
    np.testing.assert_array_equal(exchanged(array)[0], array)


@pytest.mark.parametrize("kept", [0, 1, 8, 20, LARGE, LARGE + 100])
def test_what_breaks_off_is_no_message(kept: int):
    ours, theirs = socket.socketpair()
    text, (array,) = Parcel.of(np.arange(LARGE))
    with ours, theirs:
        os.write(theirs.fileno(), (text + array)[:kept])
        theirs.close()
        with pytest.raises(EOFError):
            at_once(receiving(ours.fileno()))


def test_where_a_socket_would_block_others_go_on_until_it_does_not():
    """Both ends are on one thread, which could not write a large array if writing waited for who reads."""
    ours, theirs = socket.socketpair()
    value = [np.arange(20 * LARGE), np.arange(3), np.ones(LARGE)]
    with ours, theirs:
        for end in (ours, theirs):
            end.setblocking(False)
        sending, receive = Parcel.of(value).sending(theirs.fileno()), receiving(ours.fileno())
        assert next(receive) == EVENT_READ
        waits = 0
        for event in sending:
            assert event == EVENT_WRITE
            assert next(receive) == EVENT_READ
            waits += 1
        assert waits > 1
        received = at_once(receive)
    assert [part.tolist() for part in received] == [part.tolist() for part in value]


def test_steps_that_have_to_wait_have_no_result_at_once():
    ours, theirs = socket.socketpair()
    with ours, theirs:
        ours.setblocking(False)
        with pytest.raises(BlockingIOError):
            at_once(receiving(ours.fileno()))
