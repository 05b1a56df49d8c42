"""Linnet's text: tokens, tree, parser."""
