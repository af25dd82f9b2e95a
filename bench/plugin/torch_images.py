#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Makes a small file of photographs from a large source, for the other benchmarks of this folder: one that can be taken
to a machine with a GPU.

  torch_images.py dogs.tar photographs.npy --image 224 --count 380     pixels alone: for torch_plugin.py, torch_batch.py
  torch_images.py dogs.tar some.tar --count 512                        the JPEG files as they are: ten times smaller
  torch_images.py dogs.tar dogs.npz --image 160                        with labels and which of them are for testing:
                                                                       for torch_accuracy.py

The source is a .tar or a folder of JPEG or PNG files in a folder for each class; where there are folders 'train' and
'test' above those, an .npz keeps them apart and the other two take 'train' alone. The end of the second name says what
is made. What would be larger than --part-mib becomes several files (dogs-1.npz, dogs-2.npz, ...), each of which can
be read alone; of an .npy there is only one, with as many photographs as fit. The other benchmarks also read the .tar
itself, which is mostly the smallest.
"""
import argparse
import io
import pathlib
import sys
import tarfile

import numpy as np
import pictures
from common import MIB, say


def write_tar(files, path):
    with tarfile.open(path, "w") as tar:
        for file in files:
            data = file.read()
            entry = tarfile.TarInfo(file.name)
            entry.size = len(data)
            tar.addfile(entry, io.BytesIO(data))
    return [path]


def write_npy(files, path, image):
    np.save(path, pictures.read_files(files, image)[0])
    return [path]


def write_npz(files, path, image, part_bytes):
    """Parts take turns, so that each has some of every class. They are not compressed: it would gain little."""
    names = sorted({file.label() for file in files})
    per_image = 3 * image * image + 16
    count = -(-len(files) * per_image // part_bytes)
    paths = [path if count == 1 else path.with_name(f"{path.stem}-{part + 1}.npz") for part in range(count)]
    for part, to in enumerate(paths):
        pixels, labels, is_test = pictures.read_files(files[part::count], image, names)
        more = {} if labels is None else {"labels": labels}
        np.savez(to, images=pixels, is_test=is_test, classes=np.array(names), **more)
        say(f"{to.name}: {len(pixels)} images")
    return paths


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    add = parser.add_argument
    add("source", type=pathlib.Path, help="a .tar or a folder of images")
    add("out", type=pathlib.Path, help="file.npy, file.npz or file.tar")
    add("--image", type=int, default=224, metavar="PX", help="height and width, but for .tar (default %(default)s)")
    add("--count", type=int, metavar="N", help="at most as many, picked from all over the source (default: all)")
    add("--part-mib", type=float, default=58, metavar="MIB", help="the most that a file may have (default %(default)s)")
    options = parser.parse_args(arguments)
    if options.out.suffix not in (".npy", ".npz", ".tar"):
        parser.error(f"'{options.out}': the name must end in .npy, .npz or .tar")
    if not options.source.exists():
        parser.error(f"there is no '{options.source}'")
    return options


def main():
    options = parse(sys.argv[1:])
    part_bytes = int(options.part_mib * MIB)
    files = pictures.image_files(options.source)
    if options.out.suffix != ".npz":
        files = [file for file in files if not file.is_test()]
    count = options.count
    if options.out.suffix == ".npy":
        fit = (part_bytes - 256) // (3 * options.image ** 2)
        if min(count or len(files), len(files)) > fit:
            say(f"{fit} photographs fit into {options.part_mib:g} MiB: that many are taken")
            count = fit
    files = pictures.choose(files, count)
    if options.out.suffix == ".tar":
        made = write_tar(files, options.out)
    elif options.out.suffix == ".npy":
        made = write_npy(files, options.out, options.image)
    else:
        made = write_npz(files, options.out, options.image, part_bytes)
    for path in made:
        print(f"{path}  {path.stat().st_size / MIB:.1f} MiB")
    return 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except (pictures.DataError, OSError) as error:
        sys.exit(f"torch_images.py: {error}")
