"""The one version of the core and of every first-party plugin."""

__version__ = "0.1.0"
