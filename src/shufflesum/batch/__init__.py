"""The three roles as batch steps over files and data frames, on one machine or on a cluster.

`local` (randomize, count) and `shuffle` are the steps on one machine, `spark` the same on a cluster; `files` is how
reports are kept, `once` sees to it that none counts twice, `targets` is what both engines call.
"""
