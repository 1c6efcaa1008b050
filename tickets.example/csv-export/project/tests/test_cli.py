from ledger.cli import main


def test_total_adds_up_a_file(tmp_path, capsys):
    path = tmp_path / "expenses.txt"
    path.write_text("2026-03-01;Coffee;3.20\n2026-03-02;Bread;4.10\n", encoding="utf-8")
    assert main(["total", str(path)]) == 0
    assert capsys.readouterr().out == "7.30\n"


def test_an_unknown_command_prints_the_usage(capsys):
    assert main(["frobnicate"]) == 2
    assert "usage: ledger" in capsys.readouterr().out
