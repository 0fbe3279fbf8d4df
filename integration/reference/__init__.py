"""The reference pages in docs/, generated from the code (`make reference`); a unit test fails while one is out of date."""
