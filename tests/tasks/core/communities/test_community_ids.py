"""The ids of communities."""

from __future__ import annotations

import hashlib

from tasks.core.communities.clusterings import community_id


def test_a_communitys_id_is_of_its_level_and_members() -> None:
    assert community_id(1, ["b", "a"]) == hashlib.sha256(b'[1,["a","b"]]\n').hexdigest()[:32]
    assert community_id(1, ["a", "b"]) == community_id(1, ["b", "a"])
    assert len({community_id(1, ["a"]), community_id(2, ["a"]), community_id(1, ["a", "b"])}) == 3
