"""What several folders of tests need to run against a real broker. Tests themselves live in those folders."""
