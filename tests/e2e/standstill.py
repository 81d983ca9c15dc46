"""A process that stands still, and goes on."""
import contextlib
import fcntl
import os
import pathlib
import signal
import time

PATIENCE = 120  # seconds, for a thread that a busy disk holds in the kernel


@contextlib.contextmanager
def standing(process):
    """scripts/stress stops processes, too, and goes on with them: the file that this is for exists while it may not."""
    folder = os.environ.get("UNSEEN_STANDING")
    if not folder:
        yield None
        return
    with open(f"{folder}/lock", "wb") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield pathlib.Path(folder) / "standing" / str(process.pid)


def stands_still(task):
    try:
        return (task / "stat").read_text().rpartition(")")[2].split()[0] in "TZX"
    except (FileNotFoundError, ProcessLookupError):  # it has ended meanwhile
        return True


def freeze(process):
    """Stops a process, a subprocess.Popen: each of its threads stands still when this returns. The signal alone says
    nothing of that: a thread that runs on another core stops when it next enters the kernel."""
    with standing(process) as mark:
        if mark:
            mark.touch()
        process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    deadline = time.monotonic() + PATIENCE
    while not all(stands_still(task) for task in tasks.iterdir()):
        assert time.monotonic() < deadline, f"{process.pid} does not stand still"
        time.sleep(0.001)


def thaw(process):
    with standing(process) as mark:
        if mark:
            mark.unlink(missing_ok=True)
        process.send_signal(signal.SIGCONT)
