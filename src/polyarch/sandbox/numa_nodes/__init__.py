"""The nodes of a sandbox that have NUMA cells (NS-164): what their kubelets decide (``sandbox.kubelet_model``), what
they write to their node's files, and what they answer on the podresources socket and at ``/configz``.
"""
