"""The tuner service: decides on the knobs of a ServingProfile."""
