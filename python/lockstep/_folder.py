"""Where this package is."""
import pathlib

FOLDER = pathlib.Path(__file__).absolute().parent
