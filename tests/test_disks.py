"""A search is not kept where its database cannot be locked."""

from pathlib import Path

import pytest
from ltr.search.disks import check_disk

from ltr.errors import ConfigError

MOUNTS = """\
/dev/vda / ext4 rw 0 0
host:/a /nfs nfs4 rw,vers=4.2,local_lock=none 0 0
host:/b /nolock nfs rw,nolock,local_lock=all 0 0
me@host: /ssh fuse.sshfs rw 0 0
//host/x /smb cifs rw 0 0
1@tcp:/l /lustre lustre rw,lazystatfs 0 0
1@tcp:/m /lustre/locked lustre rw,flock 0 0
/dev/vdb /nfs/local\\040disk ext4 rw 0 0
"""


@pytest.fixture
def mounts(tmp_path: Path) -> Path:
    path = tmp_path / "mounts"
    path.write_text(MOUNTS)
    return path


@pytest.mark.parametrize("place", ["/home/me", "/nfs/out", "/smb", "/lustre/locked/out"])
def test_by_default_a_disk_with_locks_will_do(place: str, mounts: Path) -> None:
    check_disk(Path(place), None, mounts)


@pytest.mark.parametrize("place", ["/nolock/out", "/ssh", "/lustre/out"])
def test_by_default_a_disk_without_locks_is_refused(place: str, mounts: Path) -> None:
    with pytest.raises(ConfigError, match=rf"{place}/search.db .*output_dir.*storage=postgresql"):
        check_disk(Path(place), None, mounts)


@pytest.mark.parametrize("place", ["/nfs", "/nolock", "/ssh", "/smb", "/lustre"])
def test_a_file_for_several_machines_is_refused_on_any_network_disk(
    place: str, mounts: Path
) -> None:
    with pytest.raises(ConfigError, match=rf"storage=sqlite.* lies on {place}, a network disk"):
        check_disk(Path("/out"), f"sqlite:///{place}/x.db", mounts)


@pytest.mark.parametrize(
    "storage",
    [
        "sqlite:////tmp/x.db",
        "sqlite:////nfs/local disk/x.db",
        "sqlite://",
        "postgresql+psycopg2://me@host/x",
        "nonsense",
    ],
)
def test_what_is_no_file_on_a_network_disk_is_not_its_matter(storage: str, mounts: Path) -> None:
    check_disk(Path("/ssh/out"), storage, mounts)


def test_without_a_list_of_mounts_nothing_is_known(tmp_path: Path) -> None:
    check_disk(Path("/ssh"), None, tmp_path / "none")
