"""``python -m indexmill`` is the ``indexmill`` command."""

from indexmill.command import run

if __name__ == "__main__":
    run()
