"""Which rejected pods would fit now (NS-140): kube-scheduler does not watch what our decisions depend on. Pure."""
