#!/bin/sh
# What new users do, by machine, each part timed: a fresh clone and a folder of 500 images, trained, sampled, exported and
# loaded again; recipes with the four official files of MNIST alone; a WGAN-GP of the user's; programs; the verbs around a run;
# a run that is killed, moved and resumed.
# Usage: tests/walk.sh [setting of the run ...]; the length of the run is shortened unless one is given (train.kimg=5).
set -eu

root=$(CDPATH='' cd -- "$(dirname -- "$0")/.." && pwd -P)
data=${PARAGAN_DATA:-$root/../shared/data}
archive=$data/tiny-imagenet-50
if [ ! -d "$archive" ]; then
    echo "not run: no real images in $archive (set PARAGAN_DATA)"
    exit 0
fi
[ "$#" -gt 0 ] || set -- train.kimg=5

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
export PARAGAN_LOCK_S=900 OMP_NUM_THREADS=1 # it goes on beside the tests
export PARAGAN_CACHE="$place/cache"          # the classifier of the scores is trained, as for a new user

part "installation and a folder of images"
user git clone -q "$root" paragan
user paragan/run train own data.path=photos "$@"
user paragan/run sample runs/own --grid 8x8
user paragan/run export runs/own --out mine
user paragan/run sample mine --num 16 --out again.png

[ "$commands" -le 5 ] || fail "$commands commands"
before=$(awk '/^\$ .*run train/ { on = 1; next } / images\/s / { exit } on && !/^score +[0-9]+ of /' transcript | wc -l)
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

part "the first sheet at 64 px"
paragan/run train own data.path=photos data.size=64 --out runs/first >first 2>&1 &
training=$!
until [ -s runs/first/samples/step-0000000.png ] || ! kill -0 "$training" 2>/dev/null; do sleep 0.1; done
[ -s runs/first/samples/step-0000000.png ] || fail "no sheet before the first step"
echo "first sheet after $(($(date +%s) - began)) s"
kill "$training" && wait "$training" || true

part "recipes with the official files of MNIST"
mkdir mnist
cp "$data"/mnist/*-ubyte.gz mnist/
mnist() { # RECIPE SETTINGS
    user paragan/run train "$@" data.path=mnist train.kimg=1 evaluation.num_images=200 --out "runs/$1"
    [ -s "runs/$1/score.json" ] || fail "$1 has no score"
}
mnist vanilla-mnist
mnist dcgan-mnist
mnist cellular-mnist grid.shape=2x2 grid.batches=5 grid.mixture.num_images=100

part "a WGAN-GP of the user's"
cp "$root"/tests/walk/wgan.* .
user paragan/run train wgan.yaml
user paragan/run sample runs/wgan --trust --grid 4x4
[ -s runs/wgan/score.json ] || fail "the WGAN-GP has no score"

part "a program like a notebook"
user paragan/.venv/bin/python paragan/examples/notebook.py
[ -s notebook.png ] && [ -s runs/notebook/report.html ] || fail "the program left no images or no report"
part "programs: a table by classes, an autoencoder, super-resolution, a vocoder"
for program in people.py autoencoder.py "upscale.py photos"; do
    # shellcheck disable=SC2086 # a program and its argument
    user paragan/.venv/bin/python "$root"/tests/walk/$program || fail "$program"
done
user paragan/.venv/bin/python paragan/examples/vocoder.py 60

part "folders of classes"
find photos -type f | while read -r image; do # ten classes by the last digit of the number in the name
    class=$(basename "$image" | tr -cd 0-9 | tail -c 1)
    mkdir -p "classes/class $class"
    cp "$image" "classes/class $class/"
done
user paragan/run data check classes
user paragan/run train own data.path=classes data.size=16 train.kimg=1 evaluation.features=null --out runs/classes
user paragan/run sample runs/classes --class "class 3" --num 4 --out class.png
[ -s class.png ] || fail "no image of a class"

part "digits, exported and loaded without paragan"
user paragan/run train train.kimg=4
user paragan/run export runs/digits --out plain --format torch
awk '/^With PyTorch alone/ { on = 1 } on && /^```$/ { exit } code { print } on && /^```python/ { code = 1 }' plain/README.md >plain/use.py
(cd plain && ../paragan/.venv/bin/python -c "import sys
sys.modules['paragan'] = None
exec(open('use.py').read())
assert images.shape == (4, 1, 16, 16), images.shape")

part "killed, moved and resumed"
paragan/run train train.kimg=4 evaluation.features=null --out runs/killed >killed.log 2>&1 &
killed=$!
waited=0
until grep -q '"step": *2[0-9]' runs/killed/metrics.jsonl 2>/dev/null; do
    waited=$((waited + 1))
    [ "$waited" -lt 600 ] || fail "the run did not reach step 20"
    sleep 0.1
done
kill -9 "$killed"
wait "$killed" 2>/dev/null || true
mv runs/killed "moved run ü"
user paragan/run train "moved run ü"
for file in g d; do
    cmp "runs/digits/checkpoints/step-000000063/$file.safetensors" "moved run ü/checkpoints/step-000000063/$file.safetensors" ||
        fail "the resumed run has other weights than the unbroken one"
done

part "the verbs around a run"
user paragan/run eval runs/digits --json >score.json
user paragan/run compare runs/digits runs/own --out compare.html
user paragan/run project runs/digits class.png --steps 20 --out projected.png
user paragan/run watch runs/digits
user paragan/run plan digits --workers 2 data.size=8 model.width=8
user paragan/run launch slurm digits --dry-run
user paragan/run train train.kimg=0.3 devices=2 evaluation.features=null --out runs/two
user paragan/run verify wgan.yaml --trust --ranks 1
user paragan/run doctor
for file in score.json compare.html projected.png; do
    [ -s "$file" ] || fail "no $file"
done

part ""

if grep -n Traceback transcript; then fail "a traceback"; fi
echo "passed: $commands commands"
