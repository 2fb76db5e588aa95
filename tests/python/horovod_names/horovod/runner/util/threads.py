"""What the tests use of Horovod's launcher."""
import threading


def in_thread(target):
    thread = threading.Thread(target=target, daemon=True)
    thread.start()
    return thread
