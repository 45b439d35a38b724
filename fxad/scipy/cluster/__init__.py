"""`fxad.scipy.cluster`: points to the nearest of some others (`vq.vq`)."""

from fxad.scipy.cluster import vq as vq
