"""Tables and figures of the documents, generated from records."""
