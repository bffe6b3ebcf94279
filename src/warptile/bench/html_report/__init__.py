"""``warptile report``: what was recorded, or what was just run, as one HTML file that loads nothing.

`page_data` gathers what there is, each module of sections makes views of it, and `page` puts them into one document.
"""
