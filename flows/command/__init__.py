"""The pipeline's commands, a module each; the ``indexmill`` command loads the one that is called."""
