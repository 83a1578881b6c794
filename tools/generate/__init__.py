"""The files that are generated from the code: CRDs, chart, kustomize, OLM bundle, dashboards and pages."""
