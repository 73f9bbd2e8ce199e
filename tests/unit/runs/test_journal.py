"""A journal returns every whole record and nothing else."""

import errno
import os
from contextlib import closing
from pathlib import Path

import google_crc32c
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fullrank.common.errors import FullrankError, StaleTerm, VersionMismatch
from fullrank.common.types import FloatArray
from fullrank.runs import journal
from fullrank.runs.journal import Journal, ever_committed, read, read_whole, survey
from fullrank.runs.journal_format import CUT_SHORT, HEADER, MARK, SegmentReader


def is_current() -> None:
    """Confirm the term: no other controller writes here."""


def updates(iteration: int, *, units: int = 2, size: int = 3) -> FloatArray:
    return np.random.default_rng(iteration).standard_normal((units, size), dtype=np.float32)


def written(directory: Path, *, term: int, first: int, count: int) -> Path:
    """The segment of a controller that committed ``count`` iterations."""
    with_facts = Journal(directory, term=term, first=first, confirm=is_current)
    for iteration in range(first, first + count):
        facts = {"term": term, "note": f"iteration {iteration}"}
        with_facts.append(iteration, facts=facts, updates=updates(iteration))
    with_facts.close()
    return directory / f"{first:06d}-{term:06d}.journal"


def condemn(directory: Path, *, term: int, first: int) -> None:
    """Condemn iterations in a term that has committed none itself."""
    own = Journal(directory, term=term, first=first, confirm=is_current)
    own.condemn(first, "a unit was wrong")
    own.close()


def terms(directory: Path, *, first: int = 0) -> list[tuple[int, int]]:
    return [(entry.iteration, entry.facts["term"]) for entry in read(directory, first=first)]


def test_what_was_appended_is_read_again(tmp_path: Path) -> None:
    written(tmp_path, term=1, first=0, count=3)
    for iteration, entry in enumerate(read(tmp_path, first=0)):
        assert entry.iteration == iteration
        assert entry.facts == {"term": 1, "note": f"iteration {iteration}"}
        assert entry.updates is not None
        assert entry.updates.tobytes() == updates(iteration).tobytes()
        assert entry.updates.shape == (2, 3)
    assert terms(tmp_path, first=2) == [(2, 1)]


@given(cut=st.integers(0, 10_000))
def test_a_record_cut_short_is_passed_over(
    tmp_path_factory: pytest.TempPathFactory, cut: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    segment = written(directory, term=1, first=0, count=3)
    content = segment.read_bytes()
    length = len(content) // 3
    kept = min(cut, len(content))
    segment.write_bytes(content[:kept])
    assert [entry.iteration for entry in read(directory, first=0)] == list(range(kept // length))


@given(position=st.integers(0, 10_000), bit=st.integers(0, 7))
def test_a_flipped_bit_ends_what_is_believed(
    tmp_path_factory: pytest.TempPathFactory, position: int, bit: int
) -> None:
    directory = tmp_path_factory.mktemp("journal")
    segment = written(directory, term=1, first=0, count=3)
    content = bytearray(segment.read_bytes())
    position %= len(content)
    content[position] ^= 1 << bit
    segment.write_bytes(content)
    damaged = position // (len(content) // 3)
    assert [entry.iteration for entry in read(directory, first=0)] == list(range(damaged))


def test_a_whole_record_of_a_later_format_is_refused(tmp_path: Path) -> None:
    segment = written(tmp_path, term=1, first=0, count=1)
    content = bytearray(segment.read_bytes())
    content[3:4] = b"2"
    size = HEADER.size
    lengths = HEADER.unpack_from(content)[:-1]
    checksum = google_crc32c.value(HEADER.pack(*lengths, 0) + bytes(content[size:]))
    segment.write_bytes(HEADER.pack(*lengths, checksum) + bytes(content[size:]))
    with pytest.raises(
        VersionMismatch, match=r"000000-000001.journal has records of format b'FRJ2"
    ):
        read(tmp_path, first=0)


def test_a_later_term_supersedes_from_where_it_began(tmp_path: Path) -> None:
    written(tmp_path, term=1, first=0, count=5)
    written(tmp_path, term=2, first=3, count=1)
    assert terms(tmp_path) == [(0, 1), (1, 1), (2, 1), (3, 2)]
    assert ever_committed(tmp_path) == 5  # iteration 4 is known, and committed again


def test_a_condemned_iteration_does_not_come_back(tmp_path: Path) -> None:
    written(tmp_path, term=1, first=0, count=5)
    condemn(tmp_path, term=2, first=3)
    assert terms(tmp_path) == [(0, 1), (1, 1), (2, 1)]
    assert [len(entries) for entries, fault in [read_whole(tmp_path, published=5)]] == [3]
    assert read_whole(tmp_path, published=5)[1] == ""
    written(tmp_path, term=3, first=3, count=1)
    assert terms(tmp_path) == [(0, 1), (1, 1), (2, 1), (3, 3)]
    assert [each.condemned for each in survey(tmp_path)] == [None, 3, None]
    assert ever_committed(tmp_path) == 4


def test_an_iteration_that_the_whole_journal_lacks_is_named(tmp_path: Path) -> None:
    def lacks(*, published: int = 0) -> tuple[int, str]:
        entries, fault = read_whole(tmp_path, published=published)
        assert [entry.iteration for entry in entries] == list(range(len(entries)))
        return len(entries), fault.removeprefix(f"its journal entry is not in {first}, which is ")

    first = written(tmp_path, term=1, first=0, count=3)
    assert lacks(published=3) == (3, "")
    assert lacks(published=4) == (3, "whole without it")
    written(tmp_path, term=2, first=4, count=1)
    assert lacks() == (3, "whole without it")
    whole = first.read_bytes()
    first.write_bytes(whole[:-1])
    assert lacks() == (2, "cut short")
    first.write_bytes(whole[:-1] + bytes([whole[-1] ^ 1]))
    assert lacks() == (2, "damaged")
    written(tmp_path, term=3, first=2, count=3)  # a later term has committed it again
    assert lacks(published=5) == (5, "")
    (tmp_path / "000005-000003.journal").write_bytes(whole)
    assert read_whole(tmp_path, published=0)[1].endswith("which is out of order")


def test_segments_before_the_oldest_checkpoint_are_dropped(tmp_path: Path) -> None:
    own = Journal(tmp_path, term=1, first=0, confirm=is_current)
    for iteration in range(6):
        own.append(iteration, facts={"term": 1}, updates=updates(iteration))
        if iteration % 2:
            own.begin_segment(iteration + 1, keep_from=iteration - 1)
    own.close()
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "000004-000001.journal",
        "000006-000001.journal",
    ]
    assert terms(tmp_path, first=4) == [(4, 1), (5, 1)]


def test_a_segment_that_is_pruned_while_the_journal_is_surveyed_is_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    first = written(tmp_path, term=1, first=0, count=2)
    second = written(tmp_path, term=2, first=2, count=1)

    def pruned(path: Path) -> SegmentReader:
        first.unlink(missing_ok=True)
        return SegmentReader(path)

    monkeypatch.setattr(journal, "SegmentReader", pruned)
    assert [segment.path for segment in survey(tmp_path)] == [second]


def test_the_iteration_after_the_oldest_checkpoint_is_kept_where_each_is_checkpointed(
    tmp_path: Path,
) -> None:
    own = Journal(tmp_path, term=1, first=0, confirm=is_current)
    for iteration in range(4):
        own.append(iteration, facts={"term": 1}, updates=updates(iteration))
        own.begin_segment(iteration + 1, keep_from=iteration)
    own.close()
    assert terms(tmp_path, first=3) == [(3, 1)]


def test_a_large_update_is_known_by_its_facts_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "UPDATE_BYTES", 4 * 5)
    written(tmp_path, term=1, first=0, count=1)
    [entry] = read(tmp_path, first=0)
    assert entry.updates is None
    assert entry.facts["note"] == "iteration 0"


def test_a_disk_that_takes_nothing_is_an_error_that_names_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(_file: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    own = Journal(tmp_path, term=1, first=0, confirm=is_current)
    monkeypatch.setattr(os, "fdatasync", full)
    told = f"cannot write {tmp_path / '000000-000001.journal'}: No space left on device"
    with (
        pytest.raises(FullrankError, match=told),
        closing(own),
    ):
        own.append(0, facts={}, updates=updates(0))


def test_iterations_that_are_stored_together_are_on_disk_with_the_last(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[int]()
    monkeypatch.setattr(os, "fdatasync", lambda file: synced.append(os.fstat(file).st_size))
    own = Journal(tmp_path, term=1, first=0, confirm=is_current)
    for iteration in range(3):
        own.append(iteration, facts={}, updates=updates(iteration), durable=iteration == 2)
    own.close()
    [segment] = tmp_path.iterdir()
    assert synced == [segment.stat().st_size]
    assert [entry.iteration for entry in read(tmp_path, first=0)] == [0, 1, 2]


def test_an_update_that_nobody_can_compute_again_is_stored_whatever_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(journal, "UPDATE_BYTES", 4 * 5)
    own = Journal(tmp_path, term=1, first=0, confirm=is_current)
    own.append(0, facts={}, updates=updates(0), reproducible=False)
    own.close()
    [entry] = read(tmp_path, first=0)
    assert entry.updates is not None
    assert entry.updates.tobytes() == updates(0).tobytes()


@pytest.mark.parametrize("facts", [b"[]", b"{}", b'{"iteration": "0"}', b"[" * 10**5, b"\xff"])
def test_a_hostile_record_is_damage(tmp_path: Path, facts: bytes) -> None:
    header = HEADER.pack(MARK, len(facts), 0, 0, 0)
    checksum = google_crc32c.value(header + facts)
    record = HEADER.pack(MARK, len(facts), 0, 0, checksum) + facts
    (tmp_path / "000000-000001.journal").write_bytes(record)
    assert read(tmp_path, first=0) == []
    assert "not a journal" in journal.survey(tmp_path)[0].fault


def test_a_record_that_claims_more_than_its_file_holds_is_cut_short(tmp_path: Path) -> None:
    header = HEADER.pack(MARK, 2**31, 2**60, 2**31, 0)
    (tmp_path / "000000-000001.journal").write_bytes(header + b"{}")
    (tmp_path / "theirs-x.journal").write_bytes(header)
    assert read(tmp_path, first=0) == []
    assert [segment.fault for segment in journal.survey(tmp_path)] == [CUT_SHORT]


def test_a_superseded_controller_writes_nothing(tmp_path: Path) -> None:
    later: list[StaleTerm] = []

    def confirm() -> None:
        for error in later:
            raise error

    superseded = Journal(tmp_path, term=1, first=0, confirm=confirm)
    superseded.append(0, facts={"term": 1}, updates=updates(0))
    later.append(StaleTerm("a later term is current"))
    with pytest.raises(StaleTerm):
        superseded.append(1, facts={"term": 1}, updates=updates(1))
    superseded.close()
    assert terms(tmp_path) == [(0, 1)]


def test_a_record_is_on_disk_before_it_is_acknowledged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    synced = list[tuple[str, int]]()

    def note(descriptor: int) -> None:
        path = Path(f"/proc/self/fd/{descriptor}").readlink()
        synced.append((path.name, path.stat().st_size if path.is_file() else 0))

    monkeypatch.setattr(os, "fsync", note)
    monkeypatch.setattr(os, "fdatasync", note)
    own = Journal(tmp_path, term=1, first=0, confirm=is_current)
    sizes = [
        sum(map(len, own.append(iteration, facts={}, updates=updates(iteration)).pieces))
        for iteration in range(2)
    ]
    own.close()
    segment = "000000-000001.journal"
    assert synced == [(tmp_path.name, 0), (segment, sizes[0]), (segment, sum(sizes))]
