#!/bin/sh
# librosa 0.11.0, numba 0.66.0: what an import compiles.
#
# One would guess: librosa's functions are compiled by numba when they are first called, once for each machine.
# True: the lazy `import librosa` and `librosa.filters` compile nothing, but the first use of a name such as `librosa.pyin` or
# `librosa.sequence` imports modules whose functions have declared types, and these are compiled then, called or not: 12 functions,
# 23 s of a processor on busy cores, against 2.3 s where they lie in numba's cache.
# Cost: the first command in each new environment waits. The cache lies beside the package, or where NUMBA_CACHE_DIR says: where
# neither can be written to (a read-only image), or where it is thrown away (a container for each job), every process waits.
# Resample with soxr and take mel bands from another package, or fill the cache when the image is made.
#
# Run: sh findings/librosa_compiles_when_imported.sh   (installs into a temporary folder; fails if the behaviour changes)
set -eu
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
python3 -m venv "$folder/env"
"$folder/env/bin/pip" install --quiet librosa==0.11.0 numba==0.66.0
look() {
    NUMBA_CACHE_DIR="$folder/$1" "$folder/env/bin/python" -c "
import sys, time
from pathlib import Path
began = time.process_time()
import librosa
for name in sys.argv[1].split():
    getattr(librosa, name)
compiled = len(list(Path('$folder/$1').rglob('*.nbi')))
print(f'{sys.argv[1]}: {time.process_time() - began:.1f} s of a processor, {compiled} functions in the cache')
sys.exit(not (compiled > 0) == ('$3' == 'compiled'))
" "$2"
}
look few "filters" nothing
look all "pyin sequence" compiled
look all "pyin sequence" compiled
echo "as described"
