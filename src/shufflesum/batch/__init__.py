"""The three roles as batch steps over files and data frames, on one machine or on a cluster."""
