"""The stand-alone scheduler: its own queue and loop."""
