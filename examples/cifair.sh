#!/bin/sh
# The procedure of Barz & Denzler (2020) on CIFAR-10: find the duplicates of the test set, apply the
# verdicts of people, count, replace the duplicates by images of a pool, audit again.
#
#   VISLEAK_DATA=DIR sh examples/cifair.sh [FOLDER]
#
# DIR/cifar10 holds train.parquet and test.parquet (columns image, label, index) and lists of
# verdicts in the schema of ciFAIR, duplicates_dev.csv and duplicates_within_test_dev.csv.
# As in the paper, very similar images are duplicates too (--grade similar).
# The pool is the last 2,000 training images, which are removed from the training set. Replacements
# are selected automatically; for a selection by people, run `visleak review A --pool POOL
# --grade similar` before `visleak replace`, and omit --select auto.
#
#   MODEL=FILE.onnx   features of that model (visleak train-encoder) instead of the built-in ones
#   TRAIN=1           train the model first on the training set, as in the paper
#   POOL=N            training images held out (2,000)
#   CANDIDATES=auto   all candidates, instead of only the nearest image as in the paper
#   VISLEAK, PYTHON   the programs; default: from the PATH
set -eu

visleak=${VISLEAK:-visleak}
python=${PYTHON:-python3}
data=${VISLEAK_DATA:?set VISLEAK_DATA to the folder that holds cifar10/}/cifar10
out=${1:-cifair}
candidates=${CANDIDATES:-nearest}
model=${MODEL:-}

say() { printf '\n== %s\n' "$*"; }

if [ -e "$out" ]; then
    echo "cifair.sh: $out exists; name another folder: sh examples/cifair.sh FOLDER" >&2
    exit 2
fi
for file in train.parquet test.parquet duplicates_dev.csv duplicates_within_test_dev.csv; do
    [ -f "$data/$file" ] || { echo "cifair.sh: $data/$file is not there" >&2; exit 2; }
done
mkdir -p "$out"

say "hold out a pool"
"$python" - "$data/train.parquet" "$out" "${POOL:-2000}" <<'END'
import sys

import pyarrow.parquet as pq

source, out, held = sys.argv[1], sys.argv[2], int(sys.argv[3])
table = pq.read_table(source)
kept = table.num_rows - held
pq.write_table(table.slice(0, kept), f"{out}/train.parquet", row_group_size=1000)
pq.write_table(table.slice(kept), f"{out}/pool.parquet", row_group_size=1000)
print(f"{kept:,} training images, {held:,} in the pool")
END

if [ "${TRAIN:-}" ] && [ -z "$model" ]; then
    say "learn features on the training set itself"
    model=$out/model.onnx
    "$visleak" train-encoder "$out/train.parquet" --test "$data/test.parquet" -o "$model"
fi

audit() { # TEST FOLDER
    "$visleak" audit --test test="$1" --train train="$out/train.parquet" -o "$2" \
        --candidates "$candidates" ${model:+--encoder "onnx:$model"}
}

say "audit: what the machine finds"
audit "$data/test.parquet" "$out/audit"

say "verdicts of people"
"$visleak" verdicts "$out/audit" import "$data/duplicates_dev.csv" --reviewer ciFAIR
"$visleak" verdicts "$out/audit" import "$data/duplicates_within_test_dev.csv" --reviewer ciFAIR \
    --within

say "duplicates per type and class"
"$visleak" stats "$out/audit" --grade similar

say "the fair test set: a plan"
"$visleak" replace "$out/audit" --grade similar --pool "$out/pool.parquet" --select auto

say "the fair test set"
"$visleak" replace "$out/audit" --grade similar --pool "$out/pool.parquet" --select auto -o "$out/fair" --apply

say "audit again"
fair=$("$python" - "$out/fair" <<'END'
import json, pathlib, sys

folder = pathlib.Path(sys.argv[1])
print(folder / json.loads((folder / "manifest.json").read_text())["parts"][0]["opens"]["path"])
END
)
audit "$fair" "$out/audit-fair"

say "before and after"
"$visleak" stats "$out/audit" --grade similar --json > "$out/before.json"
"$visleak" stats "$out/audit-fair" --grade similar --json > "$out/after.json"
"$python" - "$out" <<'END'
import json, pathlib, sys

out = pathlib.Path(sys.argv[1])
before, after = (
    json.loads((out / name).read_text())["sets"][0] for name in ("before.json", "after.json")
)
columns = {
    "machine": before["before"],
    "with verdicts": before["after"],
    "fair test set": after["after"],
}
print(f"{'test images with a duplicate':<30}" + "".join(f"{name:>15}" for name in columns))
for kind in before["after"]["types"]:
    for grade in ("exact", "near", "similar", "total"):
        counts = (state["types"][kind][grade]["images"] for state in columns.values())
        print(f"{kind + ', ' + grade:<30}" + "".join(f"{count:>15,}" for count in counts))
counts = [state["images"] for state in columns.values()]
print(f"{'together':<30}" + "".join(f"{count:>15,}" for count in counts))
print(f"{'images of the test set':<30}{before['images']:>45,}")
if after["images"] != before["images"] or counts[-1] >= counts[0]:
    sys.exit("cifair.sh: the fair test set is not what was meant")
END
