"""A pytest plugin: the statements come from LEASETOP_MUTANT where that folder has them, else from sql/."""

import os
from pathlib import Path

from leasetop import statements

statements._FOLDERS = (Path(os.environ["LEASETOP_MUTANT"]), *statements._FOLDERS)  # type: ignore[assignment]
