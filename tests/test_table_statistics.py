"""Table 2: what data sets hold, counted, beside the published counts."""

from pathlib import Path

import pandas as pd
import pytest
from made_table import write_data
from orders import table_of

from ltr.errors import ConfigError, LTRError
from ltr.tables.data_counts import beside, cells_of
from ltr.tables.spec import StatisticsTable, read_table
from ltr.tables.table import make_table


@pytest.mark.slow
def test_any_data_set_is_counted(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    data = write_data(tmp_path)
    order = table_of(["table=neuralndcg_table2", *data, f"output_dir={tmp_path}/out"])
    assert make_table(order)
    out = capsys.readouterr().out
    folder = tmp_path / "out/tables/neuralndcg_table2_letor"
    found = pd.read_csv(folder / "table.csv").set_index("what")["counted"]
    assert found["features"] == 5
    assert found["lists train"] == 24
    assert found["lists train+vali"] == 32
    assert found["lists test"] == 30
    assert "lists train+vali" in out
    assert {path.name for path in folder.iterdir()} == {
        "table.csv", "table.html", "table.md", "table.tex",
    }  # fmt: skip


@pytest.mark.slow
def test_data_that_are_not_here_are_named_with_the_remedy(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    given = [f"data_dir={tmp_path}/none", f"output_dir={tmp_path}/out"]
    assert not make_table(table_of(["table=neuralndcg_table2", *given]))
    out, err = capsys.readouterr()
    assert "download MSLR-WEB30K.zip" in err
    assert "download istella-letor.tar.gz" in err
    assert out.count("not here") == 2


def test_a_published_count_is_equal_or_differs() -> None:
    table = read_table("neuralndcg_table2")
    assert isinstance(table, StatisticsTable)
    published = table.published["web30k"]
    assert sum(published[f"lists {split}"] for split in ("train", "test")) == 18919 + 6306
    found = beside("web30k", {**published, "lists test": 6300, "items test": 5}, published)
    words = {row[1].text: row[4].text for row in cells_of(found)}
    assert words == {
        "features": "equal",
        "lists train": "equal",
        "lists test": "differs by -6",
        "empty lists": "equal",
        "items test": "",
    }
    with pytest.raises(ConfigError, match=r"published.web30k.lists: choose of features"):
        beside("web30k", {"features": 1}, {"lists": 3})


@pytest.mark.parametrize("wrong", ["rows=web30k", "seeds=2", "workers=2", "baseline=x"])
def test_what_makes_no_sense_is_refused(wrong: str) -> None:
    with pytest.raises(LTRError, match="counts data and runs nothing; leave it out") as caught:
        make_table(table_of(["table=neuralndcg_table2", wrong]))
    assert "\n" not in str(caught.value)
