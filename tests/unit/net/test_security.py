"""Certificates name role and run; a service reports faulty ones at its start."""

import shutil
import time
from datetime import timedelta
from pathlib import Path

import pytest
from tests.certificates import RUN, certify, security

from fullrank.common.errors import ConfigError
from fullrank.config.tree import TlsSettings
from fullrank.host.certificates import (
    AUTHORITY,
    AUTHORITY_KEY,
    CERTIFICATE,
    KEY,
    TRUSTED,
    Identity,
    Role,
    examine,
    initialise,
    rotate,
    today,
)
from fullrank.net.channel import PLAINTEXT, Credentials, Security


def files(folder: Path) -> dict[Path, bytes]:
    return {path: path.read_bytes() for path in folder.rglob("*") if path.is_file()}


@pytest.mark.parametrize("role", Role)
def test_each_role_gets_a_certificate_that_names_it_and_its_run(tmp_path: Path, role: Role) -> None:
    certify(tmp_path)
    assert examine(tmp_path / role).identity == Identity(run=RUN, role=role)
    assert sorted(path.name for path in (tmp_path / role).iterdir()) == [TRUSTED, CERTIFICATE, KEY]


def test_files_are_their_owner_s_alone_and_no_service_gets_the_authority_s_key(
    tmp_path: Path,
) -> None:
    made = files(certify(tmp_path))
    assert {path.stat().st_mode & 0o777 for path in made} == {0o600}
    assert [path for path in made if path.name == AUTHORITY_KEY] == [
        tmp_path / AUTHORITY / AUTHORITY_KEY
    ]


def test_making_them_again_keeps_what_is_there_and_adds_what_is_missing(tmp_path: Path) -> None:
    before = files(certify(tmp_path))
    shutil.rmtree(tmp_path / Role.LEARNER)
    assert initialise(tmp_path, run=RUN, days=1, now=today()) == [
        Identity(run=RUN, role=Role.LEARNER)
    ]
    after = files(tmp_path)
    assert {path for path in before if before[path] != after[path]} == {
        tmp_path / Role.LEARNER / CERTIFICATE,
        tmp_path / Role.LEARNER / KEY,
    }
    assert initialise(tmp_path, run=RUN, days=1, now=today()) == []


def test_rotating_replaces_keys_and_keeps_the_authority(tmp_path: Path) -> None:
    before = files(certify(tmp_path))
    rotate(tmp_path, days=9, now=today())
    after = files(tmp_path)
    renewed = {path.name for path in before if before[path] != after[path]}
    assert renewed == {CERTIFICATE, KEY}
    assert examine(tmp_path / Role.ADMIN).not_after > today() + timedelta(days=8)


def test_a_rotation_that_was_cut_off_is_repaired_by_the_next_one(tmp_path: Path) -> None:
    folder = certify(tmp_path / "mine")
    shutil.copytree(folder, tmp_path / "rotated")
    rotate(tmp_path / "rotated", days=1, now=today())
    shutil.copy(tmp_path / "rotated" / Role.REPLAY / CERTIFICATE, folder / Role.REPLAY)
    with pytest.raises(ConfigError, match=r"tls\.key beside it is another certificate's"):
        examine(folder / Role.REPLAY)
    rotate(folder, days=1, now=today())
    assert examine(folder / Role.REPLAY).identity == Identity(run=RUN, role=Role.REPLAY)


@pytest.mark.parametrize("left", ["certificates", "authority"])
def test_an_authority_whose_key_is_elsewhere_is_not_replaced(tmp_path: Path, left: str) -> None:
    authority = certify(tmp_path) / AUTHORITY
    (authority / AUTHORITY_KEY).unlink()
    if left == "certificates":
        (authority / TRUSTED).unlink()
    else:
        for role in Role:
            shutil.rmtree(tmp_path / role)
    before = files(tmp_path)
    with pytest.raises(ConfigError, match=rf"{authority / AUTHORITY_KEY} is missing"):
        initialise(tmp_path, run=RUN, days=1, now=today(), learners=2)
    assert files(tmp_path) == before


@pytest.mark.parametrize("killed", [False, True])
def test_folders_that_volumes_have_made_and_a_lone_key_are_filled(
    tmp_path: Path, killed: bool
) -> None:
    """Volumes of Compose are empty folders; a process may die between the authority's files."""
    for name in (AUTHORITY, *Role):
        (tmp_path / name).mkdir()
    if killed:
        certify(tmp_path / "other")
        shutil.copy(tmp_path / "other" / AUTHORITY / AUTHORITY_KEY, tmp_path / AUTHORITY)
    certify(tmp_path)
    assert examine(tmp_path / Role.ADMIN).identity == Identity(run=RUN, role=Role.ADMIN)


def test_a_folder_is_one_run_s(tmp_path: Path) -> None:
    certify(tmp_path)
    with pytest.raises(ConfigError, match="holds certificates of run test; choose another"):
        initialise(tmp_path, run="other", days=1, now=today())


@pytest.mark.parametrize("run", ["", "Mine", "a/b", "a.b", "-a", "a" * 51, "a\n"])
def test_a_run_s_name_must_fit_a_certificate(tmp_path: Path, run: str) -> None:
    with pytest.raises(ConfigError, match="lower-case letters, digits and -"):
        initialise(tmp_path, run=run, days=1, now=today())
    assert list(tmp_path.iterdir()) == []


def test_an_expired_or_premature_certificate_is_refused_at_start(tmp_path: Path) -> None:
    for now in (today() - timedelta(days=3), today() + timedelta(days=3)):
        rotate(certify(tmp_path), days=1, now=now)
        with pytest.raises(ConfigError, match=f"certs rotate {tmp_path}"):
            Credentials.load(tmp_path, Role.LEARNER)


def test_parts_that_do_not_belong_together_are_refused_at_start(tmp_path: Path) -> None:
    mine, other = certify(tmp_path / "mine"), certify(tmp_path / "other")
    for name, said in (
        (TRUSTED, "ca.crt did not sign it"),
        (KEY, "tls.key beside it is another certificate's"),
    ):
        kept = (mine / Role.REPLAY / name).read_bytes()
        shutil.copy(other / Role.REPLAY / name, mine / Role.REPLAY / name)
        with pytest.raises(ConfigError, match=said):
            Credentials.load(mine, Role.REPLAY)
        (mine / Role.REPLAY / name).write_bytes(kept)
    Credentials.load(mine, Role.REPLAY)


def test_files_that_are_just_being_rotated_are_read_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A learner that dials between the writes of a certificate and of its key goes on."""
    folder = certify(tmp_path / "mine")
    shutil.copytree(folder, tmp_path / "rotated")
    rotate(tmp_path / "rotated", days=1, now=today())
    own, rotated = folder / Role.LEARNER, tmp_path / "rotated" / Role.LEARNER
    shutil.copy(rotated / CERTIFICATE, own / CERTIFICATE)
    monkeypatch.setattr(time, "sleep", lambda _: shutil.copy(rotated / KEY, own / KEY))
    credentials = Credentials.load(folder, Role.LEARNER)
    assert credentials.certificate == (rotated / CERTIFICATE).read_bytes()
    assert credentials.key == (rotated / KEY).read_bytes()


def test_an_authority_that_cannot_be_read_or_written_is_one_line(tmp_path: Path) -> None:
    certify(tmp_path / "mine")
    (tmp_path / "mine" / AUTHORITY / AUTHORITY_KEY).write_text("nonsense")
    with pytest.raises(ConfigError, match="make another authority elsewhere"):
        rotate(tmp_path / "mine", days=1, now=today())
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"cannot write .*ca\.key: Not a directory"):
        initialise(tmp_path / "file", run=RUN, days=1, now=today())


def test_another_role_s_or_unreadable_or_missing_files_are_named(tmp_path: Path) -> None:
    certify(tmp_path)
    shutil.copytree(tmp_path / Role.LEARNER, tmp_path / Role.ADMIN, dirs_exist_ok=True)
    with pytest.raises(ConfigError, match="admin holds the certificate of learner"):
        Credentials.load(tmp_path, Role.ADMIN)
    (tmp_path / Role.LEARNER / CERTIFICATE).write_text("nonsense")
    with pytest.raises(ConfigError, match=rf"learner/{CERTIFICATE}: "):
        Credentials.load(tmp_path, Role.LEARNER)
    with pytest.raises(ConfigError, match=f"cannot read .*{CERTIFICATE}: No such file"):
        Credentials.load(tmp_path / "nowhere", Role.LEARNER)


def test_no_key_is_in_what_is_printed(tmp_path: Path) -> None:
    own = security(certify(tmp_path), Role.LEARNER)
    assert "PRIVATE KEY" in (tmp_path / Role.LEARNER / KEY).read_text()
    assert "PRIVATE KEY" not in repr(own)


@pytest.mark.parametrize("address", ["127.0.0.1:0", "127.8.8.8:1", "localhost:1", "[::1]:1"])
def test_plain_text_is_spoken_on_loopback(address: str) -> None:
    assert PLAINTEXT.listen(address) is None


@pytest.mark.parametrize(
    "address", ["0.0.0.0:1", "[::]:1", "10.0.0.1:1", "controller:50051", "localhost.example:1"]
)
def test_beyond_loopback_plain_text_must_be_asked_for(address: str, tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as refused:
        PLAINTEXT.listen(address)
    assert refused.value.exit_code == 2
    assert f"refusing to listen on {address} in plain text" in str(refused.value)
    assert "fullrank certs init DIR" in str(refused.value)
    assert "tls.allow_plaintext=true" in str(refused.value)
    allowed = Security.configured(TlsSettings(allow_plaintext=True), Role.LEARNER)
    assert allowed.listen(address) is None
    assert security(certify(tmp_path), Role.REPLAY).listen(address) is not None


def test_behind_a_sidecar_a_learner_expects_a_learner_in_the_controller_s_place(
    tmp_path: Path,
) -> None:
    settings = TlsSettings(certificates=str(certify(tmp_path)), sidecar=True)
    learner = Security.configured(settings, Role.LEARNER)
    names = [learner.towards(server) for server in (Role.CONTROLLER, Role.REPLAY)]
    assert [trust and trust.server_name for trust in names] == ["learner.test", "replay.test"]


def test_a_certificate_is_one_learner_s_and_another_s_is_not_taken_for_it(tmp_path: Path) -> None:
    made = initialise(tmp_path, run=RUN, days=1, now=today(), learners=2)
    learners = [Identity(run=RUN, role=Role.LEARNER, learner=number) for number in range(2)]
    assert [each for each in made if each.role is Role.LEARNER] == learners
    assert [Identity.parse(each.uri) for each in learners] == learners
    settings = TlsSettings(certificates=str(tmp_path), learner=1)
    own = Security.configured(settings, Role.LEARNER).credentials
    assert own is not None
    assert own.identity == learners[1]
    with pytest.raises(ConfigError, match="cannot read"):
        Security.configured(TlsSettings(certificates=str(tmp_path)), Role.LEARNER)
    shutil.rmtree(tmp_path / "learner-1")
    shutil.copytree(tmp_path / "learner-0", tmp_path / "learner-1")
    with pytest.raises(ConfigError, match="learner-1 holds the certificate of learner-0"):
        Security.configured(settings, Role.LEARNER)


@pytest.mark.parametrize("uri", ["fullrank://run/learner/01", "fullrank://run/replay/1", "x://y/z"])
def test_a_number_that_is_none_or_of_another_role_is_no_identity(uri: str) -> None:
    with pytest.raises(ValueError, match="fullrank://RUN"):
        Identity.parse(uri)
