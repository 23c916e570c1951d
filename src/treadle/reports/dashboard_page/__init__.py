"""The page of `treadle dashboard`, and its server."""
