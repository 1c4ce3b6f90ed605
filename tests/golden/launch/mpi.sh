#!/bin/sh
export OMP_NUM_THREADS="${OMP_NUM_THREADS:-4}"
exec mpiexec -n 4 --hostfile 'my hosts' python3 -P -m paragan train cellular-mnist transport=mpi --out runs/digits
