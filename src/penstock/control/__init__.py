"""What should run: statements to changes of the catalog."""
