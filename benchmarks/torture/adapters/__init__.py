"""An adapter for each loop: its module is imported in that loop's environment only."""
