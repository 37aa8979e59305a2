"""Batches: pure functions of seed and epoch, nothing lost, nothing read from padding."""

from collections import Counter

import numpy as np
import pytest
import torch

from ltr.data.batches import Batch, ItemTensors, batches_by_length, subsample, train_batches
from ltr.data.transforms import fit_transform, no_transform
from tests.helpers.made_columns import mixed
from tests.helpers.made_lists import make_lists

LENGTHS = [1, 9, 4, 30, 2, 17, 5]


@pytest.fixture
def data() -> ItemTensors:
    lists = make_lists(LENGTHS, empty=(2,))
    return ItemTensors(lists, no_transform(lists))


def same(a: Batch, b: Batch) -> bool:
    return all(np.array_equal(getattr(a, name), getattr(b, name)) for name in vars(a))


def test_batch_pads_its_lists(data) -> None:
    lists = make_lists(LENGTHS, empty=(2,))
    batch = data.batch(np.array([3, 0]))
    assert batch.features.shape == (2, 30, 5)
    assert batch.mask.sum(1).tolist() == [30, 1]
    np.testing.assert_array_equal(batch.features[1, 0], lists.features[0])
    np.testing.assert_array_equal(batch.labels[0], lists.labels[14:44])
    assert batch.features[1, 1:].abs().sum() == 0
    assert batch.ranks[0].tolist() == list(range(1, 31))


def test_train_batches_have_every_list_once_and_depend_on_seed_and_epoch_only(data) -> None:
    def epoch(seed: int, epoch: int, start: int = 0) -> list[Batch]:
        torch.manual_seed(start)  # global state must not matter
        np.random.seed(start)  # noqa: NPY002
        return list(
            train_batches(data, batch_size=3, list_size=8, seed=seed, epoch=epoch, start=start)
        )

    first = epoch(0, 0)
    assert sorted(i for batch in first for i in batch.lists) == list(range(7))
    assert len(first) == 3
    assert all(map(same, epoch(0, 0), first))
    assert all(map(same, epoch(0, 0, start=1), first[1:])), "starting later changes nothing"
    assert not all(map(same, epoch(0, 1), first))
    assert not all(map(same, epoch(1, 0), first))


def test_train_batches_subsample_long_lists_anew_each_epoch(data) -> None:
    samples = set()
    for epoch in range(5):
        (batch,) = train_batches(data, batch_size=7, list_size=8, seed=0, epoch=epoch)
        row = batch.lists.tolist().index(3)
        ranks = tuple(batch.ranks[row].tolist())
        samples.add(ranks)
        assert len(ranks) == 8
        assert sorted({*ranks}) == [*ranks], "without replacement, in the file's order"
    assert len(samples) == 5


def test_subsample_has_the_distribution_of_repeated_drawing() -> None:
    relevant = np.array([True, False, False, False, True, False])
    rng = np.random.default_rng(0)
    counts = Counter(tuple(subsample(relevant, 2, rng).tolist()) for _ in range(2700))
    pairs = [(i, j) for i in range(6) for j in range(i + 1, 6) if relevant[i] or relevant[j]]
    assert set(counts) == set(pairs)
    expected = 2700 / len(pairs)
    assert all(abs(count - expected) < 5 * np.sqrt(expected) for count in counts.values())


@pytest.mark.parametrize("items", [1, 64, 10_000])
def test_batches_by_length_hold_every_list_whole(data, items) -> None:
    numbers = []
    for lists in batches_by_length(data.lengths, items=items):
        batch = data.batch(lists)
        assert batch.mask.numel() <= max(items, 30)
        assert batch.mask.sum(1).tolist() == [LENGTHS[i] for i in lists]
        assert torch.equal(data.labels[batch.rows][batch.mask], batch.labels[batch.mask])
        numbers += lists.tolist()
    assert sorted(numbers) == list(range(7))


def test_train_batches_of_fixed_shape_hold_the_same_lists(data) -> None:
    def batches(fixed: bool) -> list[Batch]:
        return list(train_batches(data, batch_size=3, list_size=20, seed=0, epoch=0, fixed=fixed))

    for plain, fixed in zip(batches(False), batches(True), strict=True):
        rows, width = plain.mask.shape
        assert fixed.mask.shape == (3, 20)
        assert fixed.features.shape == (3, 20, 5)
        np.testing.assert_array_equal(fixed.lists, plain.lists)
        for name in ("features", "labels", "mask"):
            padded = getattr(fixed, name)
            assert torch.equal(padded[:rows, :width], getattr(plain, name))
            assert not padded[rows:].any()
            assert not padded[:, width:].any()
        assert torch.equal(fixed.ranks[:rows, :width], plain.ranks)
    assert rows == 1, "the last batch was filled up"


def test_train_batches_add_noise_to_numbers_only_and_alike_after_resuming() -> None:
    data = ItemTensors(mixed(200), fit_transform(mixed(200)))

    def batches(noise: float, epoch: int = 0, start: int = 0) -> list[Batch]:
        settings = {"batch_size": 70, "list_size": 20, "seed": 3, "epoch": epoch, "start": start}
        return list(train_batches(data, noise=noise, **settings))  # type: ignore[arg-type]

    plain = batches(0.0)
    noisy = batches(0.3)
    differences = [a.features - b.features for a, b in zip(noisy, plain, strict=True)]
    for difference, batch in zip(differences, plain, strict=True):
        assert not difference[~batch.mask].any(), "padding stays 0"
        assert not difference[..., [1, 3]].any(), "categories stay codes"
        numbers = difference[batch.mask][:, [0, 2]]
        assert abs(float(numbers.std()) - 0.3) < 0.03
        assert abs(float(numbers.mean())) < 0.03
    assert all(map(same, batches(0.3, start=1), noisy[1:]))
    first, second, *_ = (difference[:5, 0, 0] for difference in differences)
    assert not torch.equal(first, second), "every step draws anew"
    next_epoch = batches(0.3, epoch=1)[0].features - batches(0.0, epoch=1)[0].features
    assert not torch.equal(next_epoch[:5, 0, 0], first)


@pytest.mark.parametrize("fixed", [True, False])
def test_item_tensors_give_the_same_bits_mapped_or_in_memory(fixed, monkeypatch) -> None:
    lists = mixed(200, weights=True) if fixed else make_lists([3, 40, 7, 90, 1, 55] * 6)
    transform = fit_transform(lists, log="nonnegative", missing="indicator")
    in_memory = ItemTensors(lists, transform, mapped=False)
    mapped = ItemTensors(lists, transform, mapped=True)
    order = np.arange(len(lists))[::-1]
    assert same(mapped.batch(order), in_memory.batch(order))
    assert torch.equal(mapped.features, in_memory.features)

    def epoch(data: ItemTensors, ahead: int) -> list[Batch]:
        monkeypatch.setattr("ltr.data.batches._AHEAD", ahead)
        knobs = {"batch_size": 4, "list_size": 20, "seed": 1, "epoch": 2, "fixed": fixed}
        return list(train_batches(data, **knobs, noise=0.1))

    for ahead in (32, 2):
        assert all(map(same, epoch(mapped, ahead), epoch(in_memory, 32)))


def test_item_tensors_map_features_beyond_half_of_the_free_memory(monkeypatch) -> None:
    lists = make_lists([10] * 5)
    for missing, mapped in ((0, False), (1, True)):
        free = 2 * 4 * lists.items * lists.width - missing
        monkeypatch.setattr("ltr.data.machine.free_memory", lambda device, free=free: free)
        assert ItemTensors(lists, no_transform(lists)).mapped is mapped


def test_train_batches_raise_an_error_of_the_sampling_thread(data, monkeypatch) -> None:
    monkeypatch.setattr("ltr.data.batches._AHEAD", 1)
    monkeypatch.setattr("ltr.data.batches.subsample", lambda *_: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        list(train_batches(data, batch_size=1, list_size=8, seed=0, epoch=0))
