"""Reports: what a person, a program and a browser see of a finished or running run."""
