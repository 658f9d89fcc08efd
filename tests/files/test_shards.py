"""Shards: every clip is in just one, whatever else is in the list, on every machine."""

import pytest

from speechmix.errors import InputError
from speechmix.files.shard_assignment import Shard, shard_number


@pytest.mark.parametrize("count", [1, 2, 7, 48])
def test_every_name_is_in_just_one_shard(count):
    shards = [Shard(index, count) for index in range(1, count + 1)]
    for name in ["a", "b", "é", "e\u0301", "common_voice_fr_19604837", "", "001"]:
        assert sum(shard.holds(name) for shard in shards) == 1


def test_the_place_of_a_name_is_pinned():
    """A run that one version began is gone on with by another."""
    assert [shard_number(name, 48) for name in ("a", "b", "clip 1")] == [48, 6, 18]


def test_shards_are_of_like_size():
    sizes = [
        sum(Shard(index, 10).holds(f"common_voice_fr_{n}") for n in range(20_000))
        for index in range(1, 11)
    ]
    assert sum(sizes) == 20_000
    assert min(sizes) > 1_800
    assert max(sizes) < 2_200


@pytest.mark.parametrize("text", ["0/4", "5/4", "1/0", "3", "a/b", "-1/3", "1.5/3", ""])
def test_what_is_no_shard_is_refused(text):
    with pytest.raises(InputError, match="3/48"):
        Shard.parse(text)
