"""The decisions about nodes, pods and templates, from their facts. Pure."""
