"""Standard input, output and error of a command; this needs the standard library alone."""

import codecs
import errno
import io
import os
import sys

_PLAIN = {"\u00b1": "+-"}  # what is printed where a terminal has no such sign; others: ?


def open_streams() -> None:
    """Make standard input, output and error usable, whatever the caller left of them.

    A closed one becomes the null device; otherwise the next file that is opened would take its
    number, and get what is printed. What a terminal's encoding lacks is printed in plain signs.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number) if number == 0 else os.write(number, b"")
        except OSError as error:
            if error.errno == errno.EBADF:  # closed, or open for reading alone
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, number)
                if null != number:
                    os.close(null)
                os.set_inheritable(number, True)  # worker processes get it too
    codecs.register_error("plain", _plain)
    for name, number in (("stdout", 1), ("stderr", 2)):
        if getattr(sys, name) is None:
            setattr(sys, name, os.fdopen(number, "w", encoding="utf-8", closefd=False))
        if isinstance(stream := getattr(sys, name), io.TextIOWrapper):
            stream.reconfigure(errors="plain")


def _plain(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    signs = error.object[error.start : error.end]
    return "".join(_PLAIN.get(sign, "?") for sign in signs), error.end
