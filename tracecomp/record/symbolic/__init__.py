"""Sizes and numbers that stand for more than one value: dynamic shapes, followed scalars."""
