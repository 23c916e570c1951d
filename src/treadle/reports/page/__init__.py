"""The page of `treadle dashboard`, and the server that shows it."""
