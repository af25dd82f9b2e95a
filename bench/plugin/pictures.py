# SPDX-License-Identifier: Apache-2.0
"""Photographs as one block of bytes: read from .tar files, folders, .npy and .npz, and made into batches on a device.

Sources:  a .tar or a folder of JPEG or PNG files; the folder that a file is in is its class, a folder 'test' or 'train'
          above that says which part of the data it belongs to
          .npz with images (uint8; N, height, width, 3), and labels and is_test if there are any; a folder of such files
          .npy with images alone
"""
import concurrent.futures
import dataclasses
import io
import os
import pathlib
import random
import tarfile

import numpy as np
import torch
import torch.nn.functional as F

ENDS = (".jpg", ".jpeg", ".png")
MEAN, DEVIATION = (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)


@dataclasses.dataclass
class Pictures:
    pixels: np.ndarray  # uint8: N, height, width, 3
    labels: np.ndarray | None
    is_test: np.ndarray
    source: str

    def __len__(self):
        return len(self.pixels)

    def part(self, chosen):
        return Pictures(self.pixels[chosen], None if self.labels is None else self.labels[chosen],
                        self.is_test[chosen], self.source)

    def classes(self):
        return 0 if self.labels is None else int(self.labels.max()) + 1


class DataError(Exception):
    pass


# ---- files of images ----


@dataclasses.dataclass
class File:
    name: str
    read: object  # a function that returns its bytes

    def parts(self):
        return self.name.split("/")

    def label(self):
        return self.parts()[-2] if len(self.parts()) > 1 else ""

    def is_test(self):
        return "test" in self.parts()[:-2]


def _files_of_tar(path):
    with tarfile.open(path) as tar:
        for member in tar:
            if member.isfile() and member.name.lower().endswith(ENDS):
                data = tar.extractfile(member).read()
                yield File(member.name, lambda data=data: data)


def _files_of_folder(path):
    for file in sorted(path.rglob("*")):
        if file.suffix.lower() in ENDS and file.is_file():
            yield File(file.relative_to(path).as_posix(), file.read_bytes)


def image_files(path):
    """All image files of a .tar or a folder, by name."""
    path = pathlib.Path(path)
    found = sorted(_files_of_folder(path) if path.is_dir() else _files_of_tar(path), key=lambda file: file.name)
    if not found:
        raise DataError(f"'{path}' has no file that ends in {', '.join(ENDS)}")
    return found


def choose(files, count):
    """As many of them, the same each time, in mixed order; all of them in order if there are no more."""
    if not count or count >= len(files):
        return files
    return random.Random(0).sample(files, count)


def decode(data, image):
    """The middle of a photograph as a square: its short side becomes `image` pixels. Greyscale becomes RGB."""
    from PIL import Image

    picture = Image.open(io.BytesIO(data)).convert("RGB")
    scale = image / min(picture.size)
    width, height = (max(image, round(side * scale)) for side in picture.size)
    left, top = (width - image) // 2, (height - image) // 2
    picture = picture.resize((width, height), Image.Resampling.BICUBIC).crop((left, top, left + image, top + image))
    return np.asarray(picture)


def read_files(files, image, names=None):
    """Pillow decodes without Python's lock, so threads help. names: of all classes; those of the files if None."""
    if names is None:
        names = sorted({file.label() for file in files})
    pixels = np.empty((len(files), image, image, 3), np.uint8)

    def fill(at):
        try:
            pixels[at] = decode(files[at].read(), image)
        except OSError as error:
            raise DataError(f"{files[at].name}: {error}") from None

    with concurrent.futures.ThreadPoolExecutor(os.cpu_count()) as pool:
        for _ in pool.map(fill, range(len(files))):
            pass
    labels = np.array([names.index(file.label()) for file in files], np.int64)
    return pixels, labels if len(names) > 1 else None, np.array([file.is_test() for file in files])


# ---- arrays ----


def _resize(pixels, image):
    if pixels.shape[1:3] == (image, image):
        return pixels
    parts = [F.interpolate(torch.from_numpy(np.ascontiguousarray(some)).permute(0, 3, 1, 2), (image, image),
                           mode="bilinear", antialias=True).permute(0, 2, 3, 1).numpy()
             for some in np.array_split(pixels, max(1, len(pixels) // 64))]
    return np.concatenate(parts)


def _read_array(path, image):
    loaded = np.load(path)
    is_archive = isinstance(loaded, np.lib.npyio.NpzFile)
    if is_archive and "images" not in loaded:
        raise DataError(f"'{path}' has no array 'images', only {', '.join(loaded.files)}")
    pixels = loaded["images"] if is_archive else loaded
    if pixels.dtype != np.uint8 or pixels.ndim != 4 or pixels.shape[3] != 3:
        raise DataError(f"'{path}' has {pixels.dtype} {pixels.shape}: uint8 (N, height, width, 3) is wanted")
    labels = loaded["labels"].astype(np.int64) if is_archive and "labels" in loaded else None
    is_test = loaded["is_test"].astype(bool) if is_archive and "is_test" in loaded else np.zeros(len(pixels), bool)
    return _resize(pixels, image), labels, is_test


# ---- any of them ----


def _arrays_below(path):
    if path.suffix in (".npy", ".npz"):
        return [path]
    return sorted(path.glob("*.npz")) if path.is_dir() else []


def read(paths, image, count=None):
    """Pictures of all sources together. count: at most as many, picked from all over the source."""
    read_parts = []
    for path in map(pathlib.Path, paths):
        if not path.exists():
            raise DataError(f"there is no '{path}'")
        arrays = _arrays_below(path)
        if arrays:
            read_parts += [_read_array(array, image) for array in arrays]
        elif path.is_dir() or tarfile.is_tarfile(path):
            files = image_files(path)
            read_parts.append(read_files(choose(files, count), image, sorted({file.label() for file in files})))
        else:
            raise DataError(f"'{path}' is none of a folder, .tar, .npy and .npz")
    labels = [part[1] for part in read_parts]
    found = Pictures(np.concatenate([part[0] for part in read_parts]),
                     None if any(some is None for some in labels) else np.concatenate(labels),
                     np.concatenate([part[2] for part in read_parts]),
                     ", ".join(pathlib.Path(path).name for path in paths))
    if count and len(found) > count:
        found = found.part(np.random.default_rng(0).permutation(len(found))[:count])
    return found


def make_smooth(image, count):
    """Random images that are smooth, as photographs are, with a little noise: where no photographs are given."""
    generator = torch.Generator().manual_seed(0)
    pixels = np.empty((count, image, image, 3), np.uint8)
    for at in range(count):
        sides = (3, 7, 15, 31)
        waves = sum(F.interpolate(torch.randn(1, 3, side, side, generator=generator), (image, image), mode="bicubic")
                    / 2 ** level for level, side in enumerate(sides))
        noise = 0.02 * torch.randn(1, 3, image, image, generator=generator)
        pixels[at] = ((waves + noise) * 50 + 120).clamp(0, 255).byte()[0].permute(1, 2, 0).numpy()
    return Pictures(pixels, None, np.zeros(count, bool), f"{count} smooth random images, not photographs")


# ---- batches, on the device ----


class Feed:
    """Pictures in the memory of a device as bytes, from which batches are made there: nothing waits for the host."""

    def __init__(self, pictures, device, classes=None, seed=0):
        self.pixels = torch.from_numpy(np.ascontiguousarray(pictures.pixels)).to(device)
        labels = pictures.labels
        if labels is None:
            labels = np.random.default_rng(0).integers(0, classes or 1000, len(pictures))
        self.labels = torch.from_numpy(labels).to(device)
        self.order = torch.Generator().manual_seed(seed)  # on the CPU: the same on every device
        self.chance = torch.Generator(device).manual_seed(seed)
        self.mean = 255 * torch.tensor(MEAN, device=device)
        self.factor = 1 / (255 * torch.tensor(DEVIATION, device=device))

    def __len__(self):
        return len(self.pixels)

    def normalise(self, pixels):
        """Bytes (N, height, width, 3) to numbers (N, 3, height, width), whose memory is channels_last."""
        return ((pixels - self.mean) * self.factor).permute(0, 3, 1, 2)

    def uniform(self, count, low, high):
        return low + (high - low) * torch.rand(count, device=self.pixels.device, generator=self.chance)

    def cut(self, batch, least):
        """Random parts of images, of `least` of the area or more, resized back; half of them are mirrored."""
        count, side = len(batch), batch.shape[2]
        area, stretch = self.uniform(count, least, 1), torch.exp(self.uniform(count, -0.29, 0.29))  # 3/4 to 4/3
        width, height = (area * stretch).sqrt().clamp(max=1), (area / stretch).sqrt().clamp(max=1)
        zero = torch.zeros_like(width)
        x = self.uniform(count, -1, 1) * (1 - width)
        y = self.uniform(count, -1, 1) * (1 - height)
        mirrored = torch.where(self.uniform(count, -1, 1) < 0, -width, width)
        maps = torch.stack([mirrored, zero, x, zero, height, y], 1).view(count, 2, 3)
        grid = F.affine_grid(maps, [count, 3, side, side], align_corners=False)
        cut = F.grid_sample(batch, grid, mode="bilinear", padding_mode="reflection", align_corners=False)
        return cut.contiguous(memory_format=torch.channels_last)

    def shift(self, chosen, border, black=False):
        """Of CIFAR: images whose place moves by up to `border` pixels, reflected at the edges, or with black around
        them; half are mirrored."""
        count, side = len(chosen), self.pixels.shape[1]
        across = torch.arange(side, device=self.pixels.device)

        def places(mirror):
            start = torch.randint(-border, border + 1, (count, 1), device=across.device, generator=self.chance)
            at = start + across
            inside = (at >= 0) & (at < side)
            at = torch.where(at < 0, -at, torch.where(at >= side, 2 * side - 2 - at, at))
            return torch.where(self.uniform(count, 0, 1)[:, None] < 0.5, side - 1 - at, at) if mirror else at, inside

        (rows, in_rows), (columns, in_columns) = places(False), places(True)
        pixels = self.pixels[chosen[:, None, None], rows[:, :, None], columns[:, None, :]]
        if black:
            pixels = pixels * (in_rows[:, :, None] & in_columns[:, None, :])[..., None]
        return self.normalise(pixels)

    def shuffled(self, size):
        """Indices of all images but a rest, in random order, `size` at a time."""
        order = torch.randperm(len(self), generator=self.order).to(self.pixels.device)
        return order[:len(self) // size * size].split(size)

    def batch(self, size, layout=torch.channels_last, least=0.35):
        """A batch of random cuts of random images; any size, images may come twice."""
        chosen = torch.randint(len(self), (size,), generator=self.order).to(self.pixels.device)
        images = self.cut(self.normalise(self.pixels[chosen]), least)
        return images.contiguous(memory_format=layout), self.labels[chosen]
