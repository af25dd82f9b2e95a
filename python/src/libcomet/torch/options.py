# SPDX-License-Identifier: Apache-2.0
"""Options of a session, checked before anything happens."""
import fnmatch
import re

from libcomet.torch import ops

RECOMPUTE = "recompute"  # the form of a block that is done again
CODEC, LOSSLESS, UNTOUCHED_KIND = range(3)  # kinds of forms: native/hold/session.h
# Numbers of forms: 0 is the session's own, 1 leaves everything as it is, 2 is for inputs of blocks that are done again.
UNTOUCHED = 1

# The bound of each use, as a part of error_rel. Convolutions and linear layers average over many positions, and a batch
# norm's input is in units of its channel's deviation; curves, row norms and gates pass an error on to everything before
# them.
PARTS = {"layer input": 1.0, "relu": 1.0, "batch norm input": 1.0, "curve input": 1 / 3, "row norm input": 1 / 3,
         "scaled": 1 / 3}


def read_size(text):
    """Bytes of '4GiB', '512 MiB', '2e9' or a number."""
    if isinstance(text, (int, float)):
        return int(text)
    match = re.fullmatch(r"\s*([0-9.]+(?:e[0-9]+)?)\s*([KMGT]?)(i?)B?\s*", text, re.IGNORECASE)
    if not match:
        raise ValueError(f"'{text}' is not a size such as '4GiB' or '800 MiB'")
    base = 1024 if match[3] else 1000
    return int(float(match[1]) * base ** " KMGT".index(match[2].upper() or " "))


def read_codec(text):
    """('group', 4) of 'group:4'."""
    name, _, parameter = text.partition(":")
    if name not in ("eb", "zvc", "group", "pool", "dct", "raw"):
        raise ValueError(f"codec: there is none called '{name}': eb, zvc, group:2|4|8, pool:K, dct")
    allowed = {"group": ("2", "4", "8")}.get(name)
    if parameter and (name not in ("group", "pool") or not parameter.isdigit() or
                      (allowed and parameter not in allowed)):
        numbers = ", ".join(allowed) if allowed else "1 to 64"
        raise ValueError(f"codec: '{text}': the number behind '{name}:' must be one of {numbers}")
    return name, int(parameter or 0)


# Settings behind a controller's name, as the comet command has them, where the option is called otherwise.
_SETTINGS = {"c": "calibration", "e": "acgc_e", "bytes": "budget_bytes", "error": "budget_error"}


def read_control(text):
    """('comet', {'measured': 0.0}) of 'comet:measured=0'. Names may have colons, too: 'comet:mean'."""
    if text is None:
        return None, {}
    parts = text.split(":")
    name = ":".join(part for part in parts if "=" not in part)
    settings = {}
    for key, _, value in (part.partition("=") for part in parts if "=" in part):
        try:
            settings[_SETTINGS.get(key, key).replace("-", "_")] = float(value)
        except ValueError:
            raise ValueError(f"control: '{key}={value}': a number is wanted") from None
    return name, settings


def _matching(model, pattern, option):
    """Modules by name with *, themselves, or of a class."""
    if isinstance(pattern, str):
        found = [module for name, module in model.named_modules() if fnmatch.fnmatchcase(name, pattern)]
    else:
        is_class = isinstance(pattern, type)
        found = [module for module in model.modules()
                 if module is pattern or (is_class and isinstance(module, pattern))]
    if not found:
        raise ValueError(f"{option}: no module is called '{pattern}'; names are those of model.named_modules()")
    return found


class Options:
    def __init__(self, *, error_rel=0.3, codec="eb", exact=False, include=None, exclude=None, forms=None,
                 min_bytes=1 << 16, lead_bytes=0, head_bytes=None, segment_bytes=32 << 20,
                 own_norms=True, memory=None):
        if not 0 < error_rel <= 4:
            raise ValueError(f"error_rel is {error_rel}: it must be above 0 and at most 4, in units of a tensor's rms")
        self.error_rel, self.codec, self.exact = float(error_rel), codec, bool(exact)
        self.include = [include] if isinstance(include, str) else list(include or ())
        self.exclude = [exclude] if isinstance(exclude, str) else list(exclude or ())
        self.forms = dict(forms or {})
        self.min_bytes, self.lead_bytes = read_size(min_bytes), read_size(lead_bytes)
        self.head_bytes = -1 if head_bytes is None else read_size(head_bytes)
        self.segment_bytes = read_size(segment_bytes)
        self.own_norms = bool(own_norms)
        self.memory = None if memory is None else read_size(memory)
        if self.memory is not None and self.memory <= 0:
            raise ValueError(f"memory is {memory}: it must be a size such as '4GiB'")
        read_codec(codec)

    def form(self, text=None):
        """As the C module wants it. text: None (the session's own), 'exact', 'lossless', 'eb:0.1', 'group:4'."""
        if text is None:
            return self._form_of(LOSSLESS if self.exact else CODEC, *read_codec(self.codec), self.error_rel)
        if text == "exact":
            return self._form_of(UNTOUCHED_KIND, "eb", 0, 0.0)
        if text == "lossless":
            return self._form_of(LOSSLESS, "eb", 0, 0.0)
        name, _, number = text.partition(":")
        if name == "eb":
            return self._form_of(CODEC, "eb", 0, float(number or self.error_rel))
        return self._form_of(CODEC, *read_codec(text), self.error_rel)

    @staticmethod
    def _form_of(kind, codec, parameter, error_rel):
        return kind, codec, parameter, tuple(error_rel * PARTS.get(role, 0.0) for role in ops.ROLES)

    def forms_of(self, model):
        """All forms, and a dict from modules to the number of theirs, for those that have one of their own."""
        forms = [self.form(), self.form("exact"), self.form("lossless")]
        numbers, rules = {"exact": 1, "lossless": 2}, {}

        def rule(pattern, number, option):
            for module in _matching(model, pattern, option):
                rules[module] = number

        for pattern in self.include:
            rule(pattern, 0, "include")
        for pattern, text in self.forms.items():
            if text == RECOMPUTE:
                continue
            if text not in numbers:
                numbers[text] = len(forms)
                forms.append(self.form(text))
            rule(pattern, numbers[text], "forms")
        for pattern in self.exclude:
            rule(pattern, 1, "exclude")
        return tuple(forms), rules

    def recomputed(self, model):
        """Modules whose forward pass is done again in backward. Of those within each other the outermost is."""
        found = [module for pattern, text in self.forms.items() if text == RECOMPUTE
                 for module in _matching(model, pattern, "forms")]
        return list(dict.fromkeys(found))
