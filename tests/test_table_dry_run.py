"""What a dry run of a table says: every run, also where the data are not here; it times nothing."""

from pathlib import Path

import pytest
from orders import table_of

from ltr.errors import DataError
from ltr.tables.table import make_table
from ltr.training.stepper import Stepper


def test_a_dry_run_of_table_3_needs_no_data_and_trains_nothing(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delattr(Stepper, "take")
    order = table_of(
        [
            *(
                "table=neuralndcg_table3",
                "dataset=web30k",
                "rows=NeuralNDCG@5,ListNet",
                "threads=1",
            ),
            *(f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out", "dry_run=true"),
        ]
    )
    assert make_table(order)
    said = capsys.readouterr()
    assert said.out.count("ltr train") == 2
    assert "loss=neuralndcg loss.k=5" in said.out
    assert "2 runs, 2 to do" in said.err
    assert "2 threads" not in said.out + said.err
    assert not (tmp_path / "out").exists()


def test_a_real_run_still_needs_its_data(tmp_path: Path) -> None:
    order = table_of(
        ["table=neuralndcg_table3", "rows=ListNet", f"data_dir={tmp_path}", "dataset=web30k"]
    )
    with pytest.raises(DataError, match=r"download MSLR-WEB30K.zip"):
        make_table(order)
