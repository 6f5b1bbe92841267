"""Loads every module of a package, so that what each registers is known."""

import importlib
import pkgutil


def load_all(package: str) -> None:
    """A module or package that is put into the folder is found: nobody keeps a list."""
    folder = importlib.import_module(package)
    for module in pkgutil.iter_modules(folder.__path__, f"{package}."):
        importlib.import_module(module.name)
