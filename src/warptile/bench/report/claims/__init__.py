"""The claims of the source texts, checked: measured figures by rung, facts by topic, and three listings."""
