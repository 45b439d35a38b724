"""`fxad.scipy.sparse`: linear systems given by products alone."""

from fxad.scipy.sparse import linalg as linalg
