"""`python -m fxad_nn`: see `fxad_nn.cli`."""

import sys

try:
    from fxad_nn.cli import main

    sys.exit(main())
except ImportError as error:  # of an extra: one line says what to install
    if "pip install" not in str(error):
        raise
    sys.exit(f"fxad_nn: {error}")
except KeyboardInterrupt:  # while everything is still being imported
    sys.exit(130)
