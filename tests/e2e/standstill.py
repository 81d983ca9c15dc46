"""A process that stands still, and goes on."""
import pathlib
import signal
import time


def freeze(process):
    """Stops a process, a subprocess.Popen: each of its threads stands still when this returns. The signal alone says
    nothing of that: a thread that runs on another core stops when it next enters the kernel."""
    process.send_signal(signal.SIGSTOP)
    tasks = pathlib.Path(f"/proc/{process.pid}/task")
    while any((task / "stat").read_text().rpartition(")")[2].split()[0] not in "TZX" for task in tasks.iterdir()):
        time.sleep(0.001)


def thaw(process):
    process.send_signal(signal.SIGCONT)
