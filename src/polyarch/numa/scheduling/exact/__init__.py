"""Mode *exact*: what a kubelet will do with a pod, decided before the pod is bound (NS-040 – NS-073). Pure."""
