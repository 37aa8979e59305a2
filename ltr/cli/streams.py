"""Standard input, output and error of a command. This module imports only the standard library."""

import codecs
import errno
import io
import os
import sys

_PLAIN = {"\u00b1": "+-"}  # printed for a character that a terminal cannot show; others: ?


def open_streams() -> None:
    """Make standard input, output and error usable, even if the caller has closed some of them.

    A closed stream is replaced by the null device. Otherwise the next file to be opened would get
    the number of the stream, and the program's output would be written to that file. Characters
    that the terminal's encoding does not have are replaced by similar ones, or by ``?``.
    """
    for number in (0, 1, 2):
        try:
            os.fstat(number) if number == 0 else os.write(number, b"")
        except OSError as error:
            if error.errno == errno.EBADF:  # closed, or open for reading only
                null = os.open(os.devnull, os.O_RDWR)
                os.dup2(null, number)
                if null != number:
                    os.close(null)
                os.set_inheritable(number, True)  # worker processes inherit it
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
