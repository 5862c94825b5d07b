"""The fleet's guard: the head of the process group that all processes of the fleet run in.

Run by its path, with nothing of leasetop imported. It waits for the end of its standard input, a pipe from the screen,
and then kills the whole group, itself included. A process that is frozen (SIGSTOP) cannot notice that the screen is
gone; SIGKILL reaches it all the same. A group's number is not given to others while a member lives, so this can hit
nobody else.
"""

import os
import signal


def main() -> None:
    # The kernel sends these to a group that its session leaves behind; the guard is needed exactly then.
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGTTOU, signal.SIGTTIN):
        signal.signal(number, signal.SIG_IGN)
    os.write(1, b"guarding\n")
    while os.read(0, 4096):
        continue
    os.killpg(0, signal.SIGKILL)


if __name__ == "__main__":
    main()
