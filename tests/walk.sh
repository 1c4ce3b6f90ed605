#!/bin/sh
# What new users do, by machine, each part timed: a fresh clone and a folder of 500 images, trained, sampled, exported and
# loaded again; recipes with the four official files of MNIST alone; a WGAN-GP of the user's; a program like a notebook.
# Usage: tests/walk.sh [setting of the run ...]; the length of the run is shortened unless one is given (train.kimg=8).
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
data=${PARAGAN_DATA:-$root/../shared/data}
archive=$data/tiny-imagenet-50
if [ ! -d "$archive" ]; then
    echo "not run: no real images in $archive (set PARAGAN_DATA)"
    exit 0
fi
[ "$#" -gt 0 ] || set -- train.kimg=8

place=$(mktemp -d)
trap 'rm -rf "$place"' EXIT
commands=0

part() { # NAME: ends the part before it
    now=$(date +%s)
    [ -z "${name-}" ] || echo "time: $name took $((now - began)) s"
    name=$1
    began=$now
}

user() { # a command that a user types
    commands=$((commands + 1))
    printf '$ %s\n' "$*" | tee -a "$place/transcript"
    "$@" 2>&1 | tee -a "$place/transcript"
}

fail() {
    echo "FAILED: $*" >&2
    exit 1
}

python3 "$root/tests/photos.py" "$archive" "$place/photos" 500
cd "$place"
export PARAGAN_LOCK_S=900

part "installation and a folder of images"
user git clone -q "$root" paragan
user paragan/run train own data.path=photos "$@"
user paragan/run sample runs/own --grid 8x8
user paragan/run export runs/own --out mine
user paragan/run sample mine --num 16 --out again.png

[ "$commands" -le 5 ] || fail "$commands commands"
before=$(awk '/^\$ .*run train/ { on = 1; next } / images\/s / { exit } on && !/^judge +step/' transcript | wc -l)
[ "$before" -le 12 ] || fail "$before lines before the first step"
echo "lines before the first step: $before"
[ -s again.png ] || fail "nothing was sampled from the exported file"
[ -s runs/own/report.html ] || fail "no report"
[ -z "$(git -C paragan status --porcelain --untracked-files=no)" ] || fail "the walk edited the project"
forecast() {
    paragan/.venv/bin/python "$root/tests/forecast.py" runs/own/metrics.jsonl
}
if ! forecast; then # a minute that began on a busy machine and ended on an idle one cannot be told beforehand
    echo "once more:"
    paragan/run train own data.path=photos "$@" --fresh >again 2>&1
    forecast || fail "the time left is told wrongly"
fi

part "recipes with the official files of MNIST"
mkdir mnist
cp "$data"/mnist/*-ubyte.gz mnist/
for recipe in vanilla-mnist dcgan-mnist cellular-mnist; do
    user paragan/run train "$recipe" data.path=mnist train.kimg=1 evaluation.num_images=200 --out "runs/$recipe"
    [ -s "runs/$recipe/score.json" ] || fail "$recipe has no score"
done

part "a WGAN-GP of the user's"
cp "$root"/tests/walk/wgan.* .
user paragan/run train wgan.yaml
user paragan/run sample runs/wgan --trust --grid 4x4
[ -s runs/wgan/score.json ] || fail "the WGAN-GP has no score"

part "a program like a notebook"
user paragan/.venv/bin/python paragan/examples/notebook.py
[ -s notebook.png ] && [ -s runs/notebook/report.html ] || fail "the program left no images or no report"
part ""

if grep -n Traceback transcript; then fail "a traceback"; fi
echo "passed: $commands commands"
