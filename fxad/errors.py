"""What fxad raises, all of it a `FxadError`, and `jax.errors`' names for the same.

try:
    train(batch)
except fxad.errors.NumericsError as error:
    ...
"""

from fxad.core.config import ConfigError
from fxad.core.errors import (
    AxisError,
    BadArgument,
    CacheWarning,
    CallError,
    CheckError,
    CheckFailed,
    ConcretizationError,
    DepthError,
    DeviceError,
    DonatedError,
    DtypeError,
    FxadError,
    GradientError,
    IndexOutOfRange,
    LeakedTracerError,
    MissingRule,
    NarrowingWarning,
    NumberOverflow,
    NumericsError,
    RetraceError,
    ShapeError,
    SizeError,
    StorageError,
    TangentError,
    TracedIndexError,
    TraceError,
    TreeError,
    TypeMismatch,
    TypePromotionError,
    UnboundAxisError,
    UnmappableError,
    UnsupportedError,
)

ConcretizationTypeError = ConcretizationError
TracerArrayConversionError = ConcretizationError
TracerBoolConversionError = ConcretizationError
TracerIntegerConversionError = ConcretizationError
NonConcreteBooleanIndexError = TracedIndexError
UnexpectedTracerError = LeakedTracerError

__all__ = [
    "AxisError",
    "BadArgument",
    "CacheWarning",
    "CallError",
    "CheckError",
    "CheckFailed",
    "ConcretizationError",
    "ConcretizationTypeError",
    "ConfigError",
    "DepthError",
    "DeviceError",
    "DonatedError",
    "DtypeError",
    "FxadError",
    "GradientError",
    "IndexOutOfRange",
    "LeakedTracerError",
    "MissingRule",
    "NarrowingWarning",
    "NonConcreteBooleanIndexError",
    "NumberOverflow",
    "NumericsError",
    "RetraceError",
    "ShapeError",
    "SizeError",
    "StorageError",
    "TangentError",
    "TraceError",
    "TracedIndexError",
    "TracerArrayConversionError",
    "TracerBoolConversionError",
    "TracerIntegerConversionError",
    "TreeError",
    "TypeMismatch",
    "TypePromotionError",
    "UnboundAxisError",
    "UnexpectedTracerError",
    "UnmappableError",
    "UnsupportedError",
]
