"""The pipeline's commands, one module each; the ``indexmill`` command loads the called one."""
