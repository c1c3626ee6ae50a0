"""Whole deployments on this machine, as long as a demo or an audit needs them."""
