"""The report as one HTML file that asks nobody for anything (RP-021). Pure: a report in, a text out."""
