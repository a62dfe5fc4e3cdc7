"""Proposals of a real masked language model, made from a configuration and loaded offline."""

import shutil

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers, processors
from transformers import BertConfig, BertForMaskedLM, GPT2Config, PreTrainedTokenizerFast

from visleak.errors import UsageError, VisleakError
from visleak.memorization.search.proposals import (
    Rules,
    best_candidates,
    load_language_model,
    read_banned_words,
)

TOKENS = (
    *("[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "[unused1]"),
    *("red", "bag", "old", "image", "of", "a", "##s", "##let", "won", "'", "t", "é", "1984"),
    *("!", ",", ".", "...", "ocean"),
)
SPECIAL = range(6)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A BERT of 2 layers with a vocabulary of word pieces, as transformers saves it."""
    path = tmp_path_factory.mktemp("mlm")
    vocabulary = {token: number for number, token in enumerate(TOKENS)}
    tokenizer = Tokenizer(models.WordPiece(vocabulary, unk_token="[UNK]"))
    tokenizer.normalizer = normalizers.Lowercase()
    tokenizer.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    tokenizer.decoder = decoders.WordPiece(cleanup=False)
    tokenizer.post_processor = processors.TemplateProcessing(
        single="[CLS] $A [SEP]", special_tokens=[("[CLS]", 2), ("[SEP]", 3)]
    )
    marks = {f"{name.lower()}_token": f"[{name}]" for name in ("PAD", "UNK", "CLS", "SEP", "MASK")}
    PreTrainedTokenizerFast(tokenizer_object=tokenizer, **marks).save_pretrained(path)
    torch.manual_seed(3)
    config = BertConfig(
        vocab_size=len(TOKENS),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=2,
        intermediate_size=32,
        max_position_embeddings=16,
        initializer_range=0.5,
    )
    BertForMaskedLM(config).save_pretrained(path)
    return path


def ids(*words):
    return [TOKENS.index(word) for word in words]


def by_hand(folder, row, place):
    """Return log-probabilities at a place of an input, straight from the network."""
    network = BertForMaskedLM.from_pretrained(folder).eval()
    with torch.no_grad():
        logits = network(input_ids=torch.tensor([row])).logits[0, place].double()
    return torch.log_softmax(logits, -1).numpy()


def model(folder, **rules):
    return load_language_model(str(folder), rules=Rules(**rules))


def test_candidates_are_the_most_probable_words_at_the_masked_position(folder):
    state = ids("old", "red", "bag")
    row = [2, state[0], 4, state[2], 3]
    logs = by_hand(folder, row, 2)
    words = [number for number in range(len(TOKENS)) if number not in SPECIAL or number == 5]
    wanted = sorted(words, key=lambda number: -logs[number])
    for count in (1, 4, 99):
        (found,) = model(folder).candidates([state], [1], count)
        assert found.ids.tolist() == wanted[:count]
        assert np.allclose(found.log_probabilities, logs[wanted[:count]], atol=1e-5)


def test_prompts_of_several_lengths_are_read_as_each_alone(folder):
    lm = model(folder)
    states = [
        ids("old", "red"),
        lm.start(4),
        ids("bag"),
        ids("of", "old"),
        ids("red", "bag", "image", "of", "a"),
    ]
    positions = [1, 3, 0, 0, 2]
    together = lm.candidates(states, positions, 7)
    for state, position, found in zip(states, positions, together, strict=True):
        (alone,) = lm.candidates([state], [position], 7)
        assert alone.ids.tolist() == found.ids.tolist()
        assert np.allclose(alone.log_probabilities, found.log_probabilities, atol=1e-5)


def test_a_prefix_is_read_by_the_language_model_alone(folder):
    lm = model(folder, prefix="Image of a")
    state = ids("old", "red")
    logs = by_hand(folder, [2, *ids("image", "of", "a"), state[0], 4, 3], 5)
    (found,) = lm.candidates([state], [1], 3)
    assert np.allclose(found.log_probabilities, logs[found.ids], atol=1e-5)
    assert lm.texts([state]) == ["old red"]
    assert lm.about()["prefix"] == "Image of a"


def test_texts_merge_pieces_and_leave_masks_out(folder):
    states = [
        ids("[MASK]", "bag", "##s", "[MASK]", "old"),
        ids("[MASK]", "[MASK]"),
        ids("red", ",", "won", "'", "t"),
        ids("##let", "bag", "."),
    ]
    assert model(folder).texts(states) == ["bags old", "", "red, won't", "##let bag."]


def words_at(lm, place):
    (found,) = lm.candidates([ids("old", "bag")], [place], 99)
    return {TOKENS[number] for number in found.ids.tolist()}


def test_stop_words_are_made_by_rule(folder):
    lm = model(folder, stop=True)
    words = {*("red", "bag", "old", "image", "of", "a", "##s", "##let", "won", "t", "ocean")}
    # the apostrophe is punctuation; the full stop is kept for the end
    assert words_at(lm, 0) == words
    assert words_at(lm, 1) == {*words, "."}
    assert "." in words_at(model(folder), 0)


def test_banned_words_are_never_proposed(folder):
    lm = model(folder, banned=("Ocean", "red", "bags", "sea"), banned_name="mine")
    assert words_at(lm, 0).isdisjoint({"ocean", "red"})
    # "bags" is two pieces: it is let go, and its pieces stay
    assert {"bag", "##s"} <= words_at(lm, 0)
    assert TOKENS.index("ocean") not in lm.words()
    assert (lm.about()["banned"], lm.about()["banned_words"]) == ("mine", 4)
    with pytest.raises(VisleakError, match=r"every word of language model .* is banned; ban fewer"):
        model(folder, banned=tuple(TOKENS))


@given(st.lists(st.floats(-9, 0), min_size=1, max_size=12), st.integers(1, 14), st.data())
def test_best_candidates_are_the_top_with_what_is_forced(values, count, data):
    size = len(values)
    allowed = np.array(data.draw(st.lists(st.booleans(), min_size=size, max_size=size)), bool)
    forced = data.draw(st.lists(st.integers(0, size - 1), max_size=2, unique=True))
    found = best_candidates(np.array(values), allowed, count, forced).ids.tolist()
    free = sorted(np.flatnonzero(allowed).tolist(), key=lambda word: (-values[word], word))[:count]
    assert set(forced) <= set(found)
    assert len(set(found)) == len(found) <= max(count, len(forced))
    others = [word for word in found if word not in forced]
    assert others == [word for word in free if word not in forced][: len(others)]
    if set(forced) <= set(free):
        assert found == free


def test_texts_are_read_into_pieces_and_what_is_unknown_is_counted(folder):
    lm = model(folder, prefix="image of a")
    assert lm.ids("Old bags") == (ids("old", "bag", "##s"), 0)
    assert lm.ids("old zebra bag") == (ids("old", "bag"), 1)
    assert lm.start(11) == [lm.mask] * 11
    for call in (lambda: lm.start(12), lambda: lm.ids("old " * 12)):
        with pytest.raises(UsageError, match="reads prompts of up to 11 word pieces;"):
            call()


def test_what_is_no_masked_language_model_is_refused(folder, tmp_path):
    with pytest.raises(UsageError, match=r"there is no such folder; give one with a language"):
        load_language_model(str(tmp_path / "none"))
    with pytest.raises(VisleakError, match=r"has no config\.json"):
        load_language_model(str(tmp_path))
    causal = shutil.copytree(folder, tmp_path / "causal")
    for architectures, named in ((["GPT2LMHeadModel"], "GPT2LMHeadModel"), (None, "gpt2")):
        GPT2Config(architectures=architectures).save_pretrained(causal)
        with pytest.raises(UsageError, match=rf"is a causal one \({named}\); --lm needs a masked"):
            load_language_model(str(causal))
    pickled = shutil.copytree(folder, tmp_path / "pickled")
    (pickled / "model.safetensors").rename(pickled / "pytorch_model.bin")
    with pytest.raises(VisleakError, match=r"has no weights, none of model\.safetensors"):
        load_language_model(str(pickled))
    broken = shutil.copytree(folder, tmp_path / "broken")
    (broken / "tokenizer.json").write_text("{")
    with pytest.raises(VisleakError, match=r"the tokenizer of .* could not be loaded"):
        load_language_model(str(broken))


def test_lists_are_read_from_files(tmp_path):
    file = tmp_path / "banned.txt"
    file.write_bytes(b"\xef\xbb\xbfred\r\n# colours\r\nblue # sky\r\n\r\nred\r\n")
    assert read_banned_words(file) == ("red", "blue")
    one, other = Rules(banned=("red", "blue")), Rules(banned=("blue", "red", "red"))
    assert one.about() == other.about() == Rules().banning(str(file)).about() | {"banned": "none"}
    with pytest.raises(UsageError, match=r"--banned .*there is no such file; give a text file"):
        read_banned_words(tmp_path / "none.txt")
    file.write_bytes(b"\xff\xfe")
    with pytest.raises(VisleakError, match=r"cannot be read \(.*\); it is UTF-8 text, one word"):
        read_banned_words(file)
    with file.open("wb") as lines:
        lines.truncate(10_000_001)
    with pytest.raises(VisleakError, match=r"is over 10 MB; a list of words is shorter"):
        read_banned_words(file)
