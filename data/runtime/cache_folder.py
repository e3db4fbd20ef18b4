"""Cache folder of the user, defined in `solver`, which caches its kernels there as well."""

from solver.cache_folder import cache_folder

__all__ = ["cache_folder"]
