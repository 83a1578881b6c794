"""What a report is made of: nodes, workloads with their pods, configuration; from a cluster, files or a snapshot."""
