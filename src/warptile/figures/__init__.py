"""Figures as HTML text: pure functions from data to a picture with its table.

They look right with the one stylesheet of `warptile.figures.assets` and gain interactions from its one script; neither
loads anything. `warptile report` shows them, and so may any page that contains both (`assets.standalone_page`).
"""
