"""The controllers of NUMA in the operator: they gather what ``numa.operator`` plans with, and do what it says."""
