"""The custom resources of placement and their settings. Pure."""
