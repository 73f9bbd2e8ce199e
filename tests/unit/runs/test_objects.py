"""A directory and an object store keep the same promises."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from tests.addresses import free_address
from tests.buckets import bucket

from fullrank.common.durable import replace_bytes
from fullrank.common.errors import ConfigError, NotFound, StorageFailed
from fullrank.common.seeding import stream
from fullrank.runs import object_store
from fullrank.runs import objects as stored
from fullrank.runs.objects import Objects, open_objects


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    folder = tmp_path_factory.mktemp("s3")
    with pytest.MonkeyPatch.context() as patch, bucket(folder, patch) as url:
        yield url


@pytest.fixture(params=["directory", pytest.param("s3", marks=pytest.mark.integration)])
def objects(request: pytest.FixtureRequest, tmp_path: Path) -> Objects:
    if request.param == "directory":
        return open_objects(str(tmp_path / "objects"))
    return open_objects(f"{request.getfixturevalue('store')}/{tmp_path.name}")


def test_what_was_put_is_read_and_replaced(objects: Objects) -> None:
    for name in ("metrics/b/000002", "heads/1", "other"):
        objects.put(name, name.encode())
    objects.put("other", b"")
    assert objects.get("other") == b""
    assert objects.get("metrics/b/000002") == b"metrics/b/000002"


def test_of_two_that_create_an_object_one_does(objects: Objects) -> None:
    assert objects.create("log/1", b"one")
    assert not objects.create("log/1", b"other")
    assert objects.get("log/1") == b"one"


def test_what_was_removed_is_gone_and_what_never_was_does_not_matter(objects: Objects) -> None:
    objects.put("a/one", b"1")
    objects.remove(["a/one", "a/never"])
    with pytest.raises(NotFound, match="holds no a/one"):
        objects.get("a/one")


def test_a_folder_is_never_removed_with_what_it_holds(tmp_path: Path) -> None:
    objects = open_objects(str(tmp_path))
    objects.put("metrics/one/a", b"1")
    for name in ("metrics/one", "metrics", ""):
        with pytest.raises(StorageFailed):
            objects.remove([name])
    assert objects.get("metrics/one/a") == b"1"


def test_what_a_controller_that_begins_sweeps_while_another_writes_is_written_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    objects, swept = open_objects(str(tmp_path)), list[bool]()
    write = replace_bytes

    def swept_once(path: Path, content: bytes) -> None:
        write(path, content)
        if len(swept) % 2 == 0:
            objects.remove([stored.SCRATCH])
        swept.append(True)

    monkeypatch.setattr(stored, "replace_bytes", swept_once)
    objects.put("log/put", b"1")
    assert objects.create("log/created", b"2")
    assert (objects.get("log/put"), objects.get("log/created")) == (b"1", b"2")
    assert len(swept) == 4


def test_an_object_of_any_size_is_written_and_read_by_requests_of_a_bounded_one(
    objects: Objects,
) -> None:
    content = stream(2, "content").bytes(2 * object_store.PART_BYTES + 7)
    objects.put("put", content)
    assert objects.create("created", content)
    assert not objects.create("created", b"")
    assert objects.get("put") == objects.get("created") == content


def test_a_store_that_cannot_be_reached_is_said_in_a_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setattr(object_store, "RETRIES", 0)
    monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://{free_address()}")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    for place in (str(tmp_path / "file"), "s3://runs/one"):
        with pytest.raises(StorageFailed) as raised:
            open_objects(place).put("name", b"")
        assert str(raised.value).startswith(f"{place}: name: ")
        assert "\n" not in str(raised.value)


def test_a_directory_that_depends_on_where_one_stands_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ConfigError, match=f"use '{tmp_path / 'store'}'"):
        open_objects("store")
