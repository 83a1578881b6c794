"""What the operator does: its reconcilers and its webhooks for custom resources, around ``placement.operator``.

``configuration`` deploys the operands and uninstalls them in order; ``statuses`` writes the status of the other custom
resources; ``registration`` is about the operator's own webhooks and the conversion, ``serving_secrets`` about
certificates and keys.
"""
