"""`python -m fxad_nn`: see `fxad_nn.cli`."""

import sys

try:
    from fxad_nn.cli import main

    sys.exit(main())
except KeyboardInterrupt:  # while everything is still being imported
    sys.exit(130)
except ValueError as error:  # FXAD_... in the environment, read while importing
    print(f"fxad_nn: {error}", file=sys.stderr)
    sys.exit(2)
