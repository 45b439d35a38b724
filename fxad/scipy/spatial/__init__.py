"""`fxad.scipy.spatial`: rotations in three dimensions (`transform`)."""

from fxad.scipy.spatial import transform as transform
