"""Network disks, on which the locks of SQLite do not hold between machines."""

from pathlib import Path

from sqlalchemy.engine import make_url
from sqlalchemy.exc import ArgumentError

from ltr.errors import ConfigError

_MOUNTS = Path("/proc/self/mounts")
_NETWORK = ("nfs", "nfs4", "cifs", "smb3", "smbfs", "lustre", "9p", "afs", "glusterfs")
_NO_LOCKS = ("sshfs", "s3fs", "rclone", "gcsfuse", "davfs", "goofys", "mount-s3")  # fuse.NAME
# Options with which a disk of this kind locks for one machine alone, or for nobody.
_UNLOCKED = {
    "nfs": ("nolock", "local_lock=all", "local_lock=flock", "local_lock=posix"),
    "nfs4": ("local_lock=all", "local_lock=flock", "local_lock=posix"),
    "cifs": ("nobrl", "nolock"),
    "smb3": ("nobrl", "nolock"),
    "lustre": ("noflock", "localflock"),
}


def check_disk(folder: Path, storage: str | None, mounts: Path = _MOUNTS) -> None:
    """Raise ``ConfigError`` where the database of a search would lie on a disk that cannot lock it.

    By default that is ``folder``, for processes of one machine: a network disk will do where its
    mount has locks. A file that ``storage`` names is meant for several machines: no network disk
    will do, as SQLite itself says (sqlite.org/howtocorrupt.html, 2.1).

    Args:
        folder: of the search.
        storage: the URL, None for the default.
        mounts: the system's list of mounts; where it is not there, nothing is known.
    """
    path = folder if storage is None else _sqlite_file(storage)
    if path is None or (found := _mount(path, mounts)) is None:
        return
    kind, options, place = found
    if _lacks_locks(kind, options) or (storage is not None and kind in _NETWORK):
        what = f"{folder}/search.db" if storage is None else f"storage=sqlite:///{path}"
        remedy = "set output_dir to a local disk" if storage is None else "leave storage out"
        raise ConfigError(
            f"{what} lies on {place}, a network disk ({kind}) whose locks do not hold between "
            f"machines, so trials would be lost or done twice: {remedy}, or start PostgreSQL and "
            "give storage=postgresql+psycopg2://USER@HOST/NAME"
        )


def _lacks_locks(kind: str, options: set[str]) -> bool:
    if kind == "lustre" and "flock" not in options:
        return True
    return kind.removeprefix("fuse.") in _NO_LOCKS or any(
        option in options for option in _UNLOCKED.get(kind, ())
    )


def _sqlite_file(storage: str) -> Path | None:
    try:
        url = make_url(storage)
    except ArgumentError:
        return None  # it is said when it is opened
    if url.get_backend_name() != "sqlite" or url.database in (None, "", ":memory:"):
        return None
    return Path(str(url.database))


def _mount(path: Path, mounts: Path) -> tuple[str, set[str], str] | None:
    """The kind, options and place of the mount that ``path`` is on; the last of equal ones."""
    try:
        lines = mounts.read_text().splitlines()
    except (OSError, UnicodeDecodeError):
        return None
    path, best = path.resolve(), None
    for line in lines:
        _, place, kind, options, *_ = line.split(" ")
        place = place.replace("\\040", " ")
        if path.is_relative_to(place) and (best is None or len(place) >= len(best[2])):
            best = kind, set(options.split(",")), place
    return best
