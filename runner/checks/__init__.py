"""What is knowable about a run before anything is rented: one kind of finding a module.

`gathering` puts them together for the command line, for the first step of a run and for the comment
at a pull request, so that they never differ.
"""
