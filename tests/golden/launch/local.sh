#!/bin/sh
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
for seed in 0 7; do
    python3 -P -m paragan train digits train.batch=64 devices=2 seed="$seed" --out runs/digits/seed-"$seed" || exit
done
