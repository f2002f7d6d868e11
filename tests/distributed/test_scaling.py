"""The model of scaling, against sums that can be done by hand."""

from __future__ import annotations

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ember_ml.distributed.scaling import Link, StepModel, fitted_link
from ember_ml.errors import DomainError

# Jobs of several processes run beside these tests.
unhurried = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])


def test_a_ring_of_two_sends_each_half_once_each_way() -> None:
    link = Link(latency=1e-3, bandwidth=1e6)
    assert link.all_reduce(1e6, 2) == pytest.approx(2 * (1e-3 + 0.5))
    assert Link.sent(1e6, 2) == 1e6
    assert link.all_reduce(1e6, 1) == 0.0


def test_what_a_rank_sends_stays_below_twice_the_bytes() -> None:
    assert Link.sent(100.0, 1) == 0.0
    assert Link.sent(100.0, 4) == 150.0
    assert 199.0 < Link.sent(100.0, 1024) < 200.0


def test_one_bucket_is_not_hidden_and_many_are_but_for_the_last() -> None:
    link = Link(latency=0.0, bandwidth=1.0)  # a byte is a second, around a ring of two
    assert StepModel(1.0, 4.0, [2.0]).seconds(2, link) == pytest.approx(5.0 + 2.0)
    # Each quarter of the pass takes 1 s, as does half a byte: only the last one is left over.
    assert StepModel(1.0, 4.0, [0.5] * 4).seconds(2, link) == pytest.approx(5.0 + 0.5)
    # A link that cannot keep up: the first bucket waits for its pass, then they queue.
    assert StepModel(1.0, 4.0, [2.0] * 4).seconds(2, link) == pytest.approx(1.0 + 1.0 + 8.0)


def test_alone_nothing_is_sent() -> None:
    step = StepModel(1.0, 2.0, [1e9])
    slow = Link(1.0, 1.0)
    assert step.seconds(1, slow) == 3.0
    assert step.efficiency(1, slow) == 1.0
    assert step.exposed(1, slow) == 0.0


@unhurried
@given(
    st.floats(1e-7, 1e-2),
    st.floats(1e6, 1e11),
    st.integers(2, 512),
    st.lists(st.floats(1e3, 1e8), min_size=1, max_size=6),
)
def test_more_ranks_are_never_more_efficient(
    latency: float, bandwidth: float, ranks: int, buckets: list[float]
) -> None:
    link, step = Link(latency, bandwidth), StepModel(0.01, 0.02, buckets)
    few, many = step.efficiency(ranks, link), step.efficiency(2 * ranks, link)
    assert 0 < many <= few * (1 + 1e-12) <= 1 + 1e-9
    assert step.exposed(ranks, link) >= -1e-12


@unhurried
@given(st.floats(1e-6, 1e-2), st.floats(1e6, 1e10), st.integers(2, 64))
def test_a_link_is_found_again_by_its_times(latency: float, bandwidth: float, ranks: int) -> None:
    link = Link(latency, bandwidth)
    sizes = [1e2, 1e4, 1e6, 1e8, 1e10]
    found = fitted_link(sizes, [link.all_reduce(n, ranks) for n in sizes], ranks)
    assert found.latency == pytest.approx(latency, rel=1e-6)
    assert found.bandwidth == pytest.approx(bandwidth, rel=1e-6)


@pytest.mark.parametrize(
    "call",
    [
        lambda: Link(-1.0, 1.0),
        lambda: Link(0.0, 0.0),
        lambda: Link(float("nan"), 1.0),
        lambda: Link(0.0, 1.0).all_reduce(1.0, 0),
        lambda: fitted_link([1.0], [1.0], 2),
        lambda: fitted_link([1.0, 2.0], [1.0], 2),
        lambda: fitted_link([1.0, 2.0], [1.0, 2.0], 1),
        lambda: fitted_link([1.0, 100.0], [2.0, 1.0], 2),
    ],
)
def test_what_makes_no_sense_is_refused(call: object) -> None:
    with pytest.raises(DomainError):
        call()  # type: ignore[operator]  # one of the functions above
