"""Shifts the wall clock that a program sees, so that validation notices programs that depend on it.

Best effort and evadable on purpose: it covers the functions of `time` and the constructors of `datetime`. What a
program reads through ctypes or a file is caught, if at all, by the difference between real runs.
"""

# Stand-ins for built-in classes are beyond what types can say.
# mypy: disable-error-code="no-untyped-def, no-untyped-call, attr-defined, valid-type, misc, no-any-return"
import datetime
import time


def shift(seconds: int) -> None:
    """Move `time.time` and relatives, `datetime.now`, `utcnow`, `today` by `seconds`."""
    real_time, real_time_ns = time.time, time.time_ns
    time.time = lambda: real_time() + seconds
    time.time_ns = lambda: real_time_ns() + seconds * 10**9
    for name in ("localtime", "gmtime", "ctime"):
        setattr(time, name, _default_to_now(getattr(time, name)))
    real_strftime = time.strftime
    time.strftime = lambda form, moment=None: real_strftime(form, moment or time.localtime())
    _shift_datetime(datetime.timedelta(seconds=seconds))


def _default_to_now(function):
    return lambda moment=None: function(time.time() if moment is None else moment)


def _shift_datetime(delta: datetime.timedelta) -> None:
    """Replace the two classes by stand-ins whose instances and instance checks are those of the real ones."""
    real_datetime, real_date = datetime.datetime, datetime.date

    class StandIn(type):
        def __instancecheck__(cls, value):
            return isinstance(value, cls.real)

        def __subclasscheck__(cls, other):
            return issubclass(getattr(other, "real", other), cls.real)

    class ShiftedDate(real_date, metaclass=StandIn):
        real = real_date

        def __new__(cls, *args, **kwargs):
            return real_date(*args, **kwargs)

        @classmethod
        def today(cls):
            return real_date.today() + delta

    class ShiftedDateTime(real_datetime, metaclass=StandIn):
        real = real_datetime

        def __new__(cls, *args, **kwargs):
            return real_datetime(*args, **kwargs)

        @classmethod
        def now(cls, tz=None):
            return real_datetime.now(tz) + delta

        @classmethod
        def utcnow(cls):
            return real_datetime.utcnow() + delta

        @classmethod
        def today(cls):
            return real_datetime.today() + delta

    for stand_in, real in ((ShiftedDate, real_date), (ShiftedDateTime, real_datetime)):
        stand_in.__name__, stand_in.__qualname__, stand_in.__module__ = real.__name__, real.__name__, "datetime"
        setattr(datetime, real.__name__, stand_in)
