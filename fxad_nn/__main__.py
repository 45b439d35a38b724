"""`python -m fxad_nn`: see `fxad_nn.cli`."""

import sys

from fxad_nn.cli import main

sys.exit(main())
