"""The machine and its kubelet, read: sysfs and procfs, checkpoint and configuration files, the podresources API."""
