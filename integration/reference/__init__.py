"""The generated pages in docs/ (`make reference`), from code and records; a unit test fails while one is out of date."""
