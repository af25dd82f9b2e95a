# SPDX-License-Identifier: Apache-2.0
"""What the error of a held tensor does to gradients, computed from a part of the tensor as it was and as it comes back
(docs/measured.md). Results are on the tensors' device; nothing here waits for it."""
import torch
import torch.nn.functional as F

WIDTH, OTHERS = 8, 16      # channels that are kept of a tensor, and of the other side, at most
SUMS, WANTED = 512, 144    # weights whose gradient is computed: at most, and where there is a choice
MASK = (1 << 64) - 1


def drawn(seed, number, count):
    """A number below `count` that follows from the first two."""
    x = (seed * 0x9E3779B97F4A7C15 + number * 0xBF58476D1CE4E5B9) & MASK
    x ^= x >> 31
    x = x * 0x94D049BB133111EB & MASK
    x ^= x >> 29
    return x % count


def channels_first(tensor, dim):
    """In fp32."""
    return tensor.movedim(dim, 0).float()


# ---- weights of layers ----


class Layer:
    """What is known of a layer: dimensions of its maps (0: it is linear), and kernel, stride, padding, dilation (down,
    right each), groups."""
    __slots__ = "dimensions", "kernel", "stride", "padding", "dilation", "groups"

    def __init__(self, dimensions, geometry):
        self.dimensions, self.groups = dimensions, geometry[8]
        self.kernel, self.stride, self.padding, self.dilation = (geometry[at:at + 2] for at in (0, 2, 4, 6))

    @property
    def taps(self):
        return self.kernel[0] * self.kernel[1]

    @property
    def channels_at(self):
        return 1 if self.dimensions else -1

    def read(self, tensor, first, width):
        """Some channels of an input, output or gradient: (channels, N, H, W), or (channels, rows)."""
        some = channels_first(tensor.narrow(self.channels_at, first, width), self.channels_at)
        if self.dimensions == 0:
            return some.flatten(1)
        return some.unsqueeze(2) if self.dimensions == 1 else some

    def weight_sums(self, x, dy):
        """The gradient of the weights between some inputs and some outputs: (taps, inputs, outputs)."""
        columns = dy.flatten(1).t()
        if self.dimensions == 0:
            return (x.flatten(1) @ columns).unsqueeze(0)
        down, right = self.padding
        x = F.pad(x, (right, right, down, down)) if down or right else x
        sums = [self._row_of_taps(x, dy.shape, row).flatten(2).flatten(0, 1) @ columns for row in range(self.kernel[0])]
        return torch.cat(sums).view(self.taps, x.shape[0], dy.shape[0])

    def _row_of_taps(self, x, shape, row):
        """What each tap of a row of the kernel sees of an input, at all positions of the output: (taps, inputs, N, H',
        W'). A row at a time, so that the copies that are multiplied stay small."""
        channel, image, down, right = x.stride()
        return x.as_strided((self.kernel[1], x.shape[0], x.shape[1], shape[2], shape[3]),
                            (right * self.dilation[1], channel, image, down * self.stride[0], right * self.stride[1]),
                            x.storage_offset() + row * self.dilation[0] * down)

    def choose_others(self, first, width, mine, others, seed):
        """Channels of the other side, which has `others`: so that there are not many more sums than are wanted."""
        count, in_group = OTHERS, others // self.groups
        while count > 2 and count * width * self.taps > WANTED:
            count //= 2
        if self.groups > 1:  # those of the groups that the kept channels are in
            begin = first // (mine // self.groups) * in_group
            return begin, min(count if in_group > 1 else width, others - begin)
        if count >= others:
            return 0, min(others, OTHERS)
        return drawn(*seed, others - count + 1), count


class Pairs:
    """Which weights are looked at: `count` channels of one side from `first` on, others of the other side."""

    def __init__(self, layer, first, width, mine, others, seed):
        self.first, self.in_mine, self.in_other = first, mine // layer.groups, others // layer.groups
        self.other, self.others = layer.choose_others(first, width, mine, others, seed)
        self.count = max(1, min(width, SUMS // (self.others * layer.taps)))
        self.is_grouped = layer.groups > 1
        self.values = layer.taps * sum((first + i) // self.in_mine == (self.other + j) // self.in_other
                                       for i in range(self.count) for j in range(self.others))

    def only_in_groups(self, sums):
        """sums: (taps, count, others). A pair of channels that are in no group together has no weight."""
        if not self.is_grouped:
            return sums
        mine = torch.arange(self.first, self.first + self.count, device=sums.device) // self.in_mine
        other = torch.arange(self.other, self.other + self.others, device=sums.device) // self.in_other
        return sums * (mine.unsqueeze(1) == other)


def of_input(layer, part, exact, x, dy, seed):
    """An error of a layer's input: sums, and of how many weights. exact: the part as it was; x: what comes back."""
    first, width = part
    at = layer.channels_at
    pairs = Pairs(layer, first, width, x.shape[at], dy.shape[at], seed)
    error = layer.read(x, first, pairs.count) - layer.read(exact, 0, pairs.count)
    sums = layer.weight_sums(error, layer.read(dy, pairs.other, pairs.others))
    return pairs.only_in_groups(sums), pairs.values


def of_output(layer, part, error, outputs, x, seed):
    """An error of the gradient of a layer's output, in some of its channels, as Layer.read has them."""
    first, width = part
    pairs = Pairs(layer, first, width, outputs, x.shape[layer.channels_at], seed)
    sums = layer.weight_sums(layer.read(x, pairs.other, pairs.others), error[:pairs.count]).transpose(1, 2)
    return pairs.only_in_groups(sums), pairs.values


# ---- batch norms ----


def of_norm(exact, u, g, slope):
    """Of some channels, all (channels, positions): the error of gamma's gradient, and that of dX. exact, u: normalised
    values as they were and as they come back; g: the gradient behind the norm; slope: gamma / deviation."""
    sums, error = (g * u).sum(1, keepdim=True), u - exact
    of_scale = (g * error).sum(1, keepdim=True)
    of_dx = -(error * sums + exact * of_scale) * (slope.unsqueeze(1) / g.shape[1])
    return of_scale.squeeze(1), of_dx


# ---- operations that there is no model of: what they pass on, with x as it was and as it comes back ----


def curve_backward(is_silu, approximate):
    if is_silu:
        return lambda dy, x: torch.ops.aten.silu_backward(dy, x)
    return lambda dy, x: torch.ops.aten.gelu_backward(dy, x, approximate=approximate)


def scale_backward(dims):
    """The gradient of factors that are the same along `dims`."""
    return lambda dy, x: (dy * x).sum(dims)


def layer_norm_backward(shape, weight, eps, exact):
    """The batch's statistics are kept exactly by PyTorch: they are those of what was read."""
    _, mean, inverse = torch.native_layer_norm(exact, shape, None, None, eps)
    return lambda dy, x: torch.ops.aten.native_layer_norm_backward(dy, x, shape, mean, inverse, weight, None,
                                                                   [True, False, False])[0]


def group_norm_backward(groups, weight, eps, exact):
    count, channels = exact.shape[:2]
    positions = exact[0, 0].numel()
    _, mean, inverse = torch.native_group_norm(exact, None, None, count, channels, positions, groups, eps)
    return lambda dy, x: torch.ops.aten.native_group_norm_backward(
        dy.contiguous(), x.contiguous(), mean, inverse, weight, count, channels, positions, groups,
        [True, False, False])[0]


def of_operation(backward, exact, x, dy):
    """Sums of squares: of the error of what an operation passes on, and of all of it."""
    whole = backward(dy, exact)
    return (backward(dy, x) - whole).square().sum(), whole.square().sum()
