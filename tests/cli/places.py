"""A folder with providers of models that are installed nowhere else."""

import os


class ProviderFolder:
    """A folder whose module ``demo`` has providers, each in a variable of its name in capital letters.

    Args:
        folder: the folder.
        files: the text of each module.
        providers: the names of the providers.
    """

    def __init__(self, folder, files, providers):
        self.folder = folder
        info = folder / "demo-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text("Metadata-Version: 2.1\nName: demo\nVersion: 1.0\n")
        points = "".join(f"{name} = demo:{name.upper()}\n" for name in providers)
        (info / "entry_points.txt").write_text(f"[treadle.providers]\n{points}")
        for name, text in files.items():
            (folder / name).write_text(text)
        path = os.pathsep.join([str(folder), os.environ.get("PYTHONPATH", "")])
        self.environment = {
            **os.environ,
            "PYTHONPATH": path.rstrip(os.pathsep),
            "PYTHONWARNINGS": "error",
            "TERM": "dumb",
        }

    def open_gate(self):
        """Let the tools and models that wait go on."""
        (self.folder / "gate").write_text("")

    def count(self, name):
        """How many times something was noted in a file."""
        file = self.folder / name
        return len(file.read_text()) if file.exists() else 0
