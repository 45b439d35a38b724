"""The errors of `fxad_nn`: each names what was wrong, what was seen and what to try.

raise ConfigError("unknown preset 'nanoo'" + did_you_mean("nanoo", PRESETS))

An option in a message is `learning_rate`, as Python writes it: see `fxad_nn.flags`.
"""

from __future__ import annotations

from fxad.core.schema import did_you_mean as did_you_mean


class UserError(ValueError):
    """Something the user gave cannot be used; the command line prints it without a traceback."""


class ConfigError(UserError):
    """An option or a model's configuration is unknown or out of range."""


class DataError(UserError):
    """A text, a token file or a vocabulary is missing, damaged or does not fit the model."""


class TemplateError(DataError):
    """A chat template is damaged, refuses or rewrites the messages, or takes too much."""


class CheckpointError(UserError):
    """A checkpoint is missing, damaged, or belongs to another model."""


class TrainingError(UserError):
    """Training cannot go on, for instance because the loss is no number any more."""


class DamageWarning(UserWarning):
    """What was read is usable but doubtful: weights that hold NaN, a cache that was damaged."""
