"""Shifts the wall clock that a program sees, so that validation notices programs that depend on it.

Best effort and evadable on purpose: it covers the functions of `time` and the constructors of `datetime`. What a
program reads through ctypes or a file is caught, if at all, by the difference between real runs.
"""

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
    real_datetime, real_date = datetime.datetime, datetime.date

    class ShiftedDateTime(real_datetime):
        @classmethod
        def now(cls, tz=None):
            return real_datetime.now(tz) + delta

        @classmethod
        def utcnow(cls):
            return real_datetime.utcnow() + delta

        @classmethod
        def today(cls):
            return real_datetime.today() + delta

    class ShiftedDate(real_date):
        @classmethod
        def today(cls):
            return real_date.today() + delta

    ShiftedDateTime.__name__ = ShiftedDateTime.__qualname__ = "datetime"
    ShiftedDate.__name__ = ShiftedDate.__qualname__ = "date"
    datetime.datetime, datetime.date = ShiftedDateTime, ShiftedDate
