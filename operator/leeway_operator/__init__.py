"""The operator: ServingProfile models (the source of the CRD), handlers, status."""
