"""The engines of several machines, for real: LTR_ENGINES=1, and their programs are here."""

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(
        "LTR_ENGINES" not in os.environ, reason="LTR_ENGINES=1 asks for it: minutes"
    ),
]


def test_a_search_outlasts_killed_workers_and_a_restart_of_postgresql(tmp_path: Path) -> None:
    if not shutil.which("pg_ctl") and not list(Path("/usr/lib/postgresql").glob("*/bin")):
        pytest.skip("PostgreSQL is not installed")
    pytest.importorskip("psycopg2", reason="needs ltr-torch[cluster]")
    for folder in (tmp_path, *tmp_path.parents[:2]):
        folder.chmod(0o755)  # the server is another user's
    script = EXAMPLES / "postgresql" / "three_workers.py"
    subprocess.run([sys.executable, script, tmp_path], check=True)


def test_a_table_on_slurm_is_the_same_whatever_happens_to_its_jobs(tmp_path: Path) -> None:
    if os.geteuid() != 0 or not all(map(shutil.which, ("slurmctld", "slurmdbd", "munged"))):
        pytest.skip("needs root, and Slurm with munge and MariaDB (examples/slurm/cluster.sh)")
    pytest.importorskip("submitit", reason="needs ltr-torch[cluster]")
    cluster, folder = str(EXAMPLES / "slurm" / "cluster.sh"), f"/tmp/ltr-slurm-{os.getpid()}"
    env = {**os.environ, "SLURM_CONF": f"{folder}/slurm.conf"}
    try:
        subprocess.run([cluster, "start", folder], check=True, stdout=subprocess.DEVNULL)
        script = EXAMPLES / "slurm" / "table.py"
        subprocess.run([sys.executable, script, tmp_path], check=True, env=env)
    finally:
        subprocess.run([cluster, "stop", folder], check=True)
        shutil.rmtree(folder, ignore_errors=True)
