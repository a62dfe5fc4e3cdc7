"""What ``visleak memorization compare`` refuses."""

from calling import check_refused, loaded, refusals

from linear_model import linear_model


@refusals("""
    --methods pez --iterations x -> --iterations must be a whole number
    --methods pez --prompts {list} -> --prompts is for greedy; add greedy to --me
    --lm no/folder --temperature 0.1 -> language model no/folder: there is no such folder
    --length 99 -> --length must be at most
""")
def test_what_cannot_be_is_refused_in_a_line(arguments, words, put, tmp_path, monkeypatch):
    loaded(monkeypatch, linear_model())
    listed, training = put("list.txt", "ant bee\ncow dog\nfox gnu\n"), put("training/a.png").parent
    command = f"memorization compare --model some/folder --device cpu --source {training}"
    check_refused(f"{command} -o {tmp_path}/out {arguments}", words, list=listed)
