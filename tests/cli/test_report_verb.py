import shutil

from calling import check_refused, refusals, refused, run


def test_report_is_written_where_it_is_wanted(audited, tmp_path):
    out = tmp_path / "page.html"
    ran = run("report", audited, "-o", out)
    assert (ran.code, ran.out, ran.err) == (0, f"{out}\n", "")
    assert "data:image/webp" in out.read_text()
    code, message = refused("report", audited, "-o", out, "--no-images")
    assert (code, message.startswith(f"{out} exists;")) == (2, True)
    assert run("report", audited, "-o", out, "--no-images", "--force").code == 0
    assert "data:image/webp" not in out.read_text()


def test_report_survives_the_loss_of_its_sources(dataset, tmp_path):
    copy, out = tmp_path / "data", tmp_path / "out"
    shutil.copytree(dataset, copy)
    assert run("audit", copy, "-o", out).code == 0
    shutil.rmtree(copy)
    ran = run("report", out)
    assert ran.code == 0
    assert "no images of test are shown: source" in ran.err
    assert "data:image/webp" not in (out / "report.html").read_text()


@refusals("""
    report {audit} -o {folder} -> the output {folder} is a folder; choose a file with -o FILE
    show {audit} x -o {folder} -> the output {folder} is a folder; choose a file with -o FILE
""")
def test_folder_as_output(audited, tmp_path, arguments, words):
    (tmp_path / "folder.png").mkdir()
    check_refused(arguments, words, audit=audited, folder=tmp_path / "folder.png")


def test_newer_schema_is_refused(audited, tmp_path):
    (tmp_path / "audit.json").write_text('{"schema": 99}')
    check_refused(f"report {tmp_path}", "has schema 99", code=1)
