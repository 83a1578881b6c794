"""The custom resources of placement, their schemas and the settings read from them. Pure."""
