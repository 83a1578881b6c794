"""From a decision to patches and events. Pure."""
