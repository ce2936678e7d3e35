"""The package on AArch64, emulated or not, compared with this processor."""
