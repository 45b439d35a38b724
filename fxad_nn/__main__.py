"""`python -m fxad_nn`: see `fxad_nn.cli`."""

import sys

try:
    from fxad_nn.cli import main

    sys.exit(main())
except KeyboardInterrupt:  # while everything is still being imported
    sys.exit(130)
